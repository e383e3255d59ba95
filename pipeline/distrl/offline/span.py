"""Which records are meant by `--from … --to …`: an offset or a time at each end, on every partition of a topic.

Words. A *bound* is an offset (int) or a time (datetime); one that is left out is the end of what the broker keeps.
A *span* is what the bounds mean now: [first, to) in offsets on each partition, so that it can be read again.
Pure: what the broker says comes in as `Kept`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NoReturn, Protocol

from distrl.broker.topics import topic_name
from distrl.errors import ConfigError

Bound = int | datetime
End = Literal["begin", "end"]

_FLAGS: Final[Mapping[End, str]] = {"begin": "--from", "end": "--to"}
_AGO: Final = re.compile(r"-([0-9]+(?:\.[0-9]+)?)([smhdw])")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_FORMS: Final = (
    "an offset like 128, a time like 2025-01-31T12:00Z (UTC unless it says another zone), or one ago like -2h"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a person wants. partitions: all if empty.

    line: the words of their command line without the range, so that a mended one can be named whole; none where a
    program asks, which gives `begin`, `end` and `partitions`.
    """

    run: str
    topic: str = "trajectories"
    begin: Bound | None = None
    end: Bound | None = None
    partitions: Sequence[int] = ()
    line: Sequence[str] = ()

    def hint(self) -> str:
        """What asks for this: the whole command line, or the arguments that a program gives."""
        given = [("--partition", str(each)) for each in self.partitions] if self.line else []
        given += [(self.name_of(end), written(bound)) for end, bound in self.bounds()]
        if self.line:
            return shlex.join([*self.line, *(word for pair in given for word in pair)])
        said = [f"{name}={value if value.isdigit() else repr(value)}" for name, value in given]
        said += [f"partitions={list(self.partitions)}"] if self.partitions else []
        return f"ask for {', '.join(said)}" if said else "ask without bounds: for all that is kept"

    def where(self, *ends: End) -> str:
        """These ends of the range (both, if none is named) as they were given."""
        between = " " if self.line else "="
        given = [(end, bound) for end, bound in self.bounds() if not ends or end in ends]
        return " ".join(f"{self.name_of(end)}{between}{written(bound)}" for end, bound in given)

    def name_of(self, end: End) -> str:
        """What whoever asks calls this end of the range."""
        return _FLAGS[end] if self.line else end

    def bounds(self) -> list[tuple[End, Bound]]:
        """The ends that are given."""
        ends: tuple[tuple[End, Bound | None], ...] = (("begin", self.begin), ("end", self.end))
        return [(end, bound) for end, bound in ends if bound is not None]


@dataclass(frozen=True, slots=True)
class Range:
    """The records [first, to) of one partition. Of a compacted or transactional topic, some offsets hold none."""

    partition: int
    first: int
    to: int

    def __len__(self) -> int:
        return self.to - self.first


@dataclass(frozen=True, slots=True)
class Span:
    """What is read: of topic `topic` (a key of TOPICS) of `run`, these ranges, in the order of the partitions."""

    run: str
    topic: str
    ranges: tuple[Range, ...]

    @property
    def name(self) -> str:
        """The topic's full name."""
        return topic_name(self.run, self.topic)

    def __len__(self) -> int:
        """Offsets in it; at least as many as records."""
        return sum(map(len, self.ranges))


class Kept(Protocol):
    """What the broker keeps of a topic."""

    @property
    def offsets(self) -> Mapping[int, tuple[int, int]]:
        """Partition -> (first kept, one past the last)."""
        ...

    def at(self, at_ms: int) -> Mapping[int, int | None]:
        """Partition -> offset of its first record of that time (ms) or later; None where there is none."""
        ...

    def oldest(self, partition: int) -> int:
        """When the first record that is kept was made, ms. Asked for partitions that hold one."""
        ...


def bound_of(text: str, now: datetime) -> Bound:
    """The bound that a person wrote. Raises ConfigError with the forms that there are."""
    said = text.strip()
    if said.isascii() and said.isdigit():
        return int(said)
    ago = _AGO.fullmatch(said)
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        return as_utc(datetime.fromisoformat(said))
    except (ValueError, OverflowError):
        raise ConfigError(f"{text!r}", "is no offset and no time", _FORMS) from None


def as_bound(value: int | str | datetime | timedelta | None, now: datetime) -> Bound | None:
    """The bound that a program gave: as `bound_of`, a datetime (UTC if it has no zone), or a timedelta before now."""
    if isinstance(value, str):
        return bound_of(value, now)
    if isinstance(value, timedelta):
        return now - abs(value)
    if isinstance(value, datetime):
        return as_utc(value)
    if value is not None and value < 0:
        raise ConfigError(f"{value}", "is no offset and no time", _FORMS)
    return value


def as_utc(at: datetime) -> datetime:
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)


def written(bound: Bound) -> str:
    """A bound as `bound_of` reads it."""
    return bound.isoformat().replace("+00:00", "Z") if isinstance(bound, datetime) else str(bound)


class _RefusedError(Exception):
    """where, what, and what could be asked for instead, the nearest first."""

    def __init__(self, where: str, what: str, *instead: Asked) -> None:
        super().__init__(where, what)
        self.where, self.what, self.instead = where, what, instead


def resolve(asked: Asked, kept: Kept) -> Span:
    """The offsets that are meant. Raises ConfigError, whose hint is the whole command that would work (for a program,
    the arguments), for a range that the broker does not keep, that ends before it begins, or that names a partition
    that is none.
    """
    try:
        return _resolve(asked, kept)
    except _RefusedError as refused:
        working = (each for each in refused.instead if _works(each, kept))
        everything = replace(asked, begin=None, end=None, partitions=())
        raise ConfigError(refused.where, refused.what, next(working, everything).hint()) from None


def _works(asked: Asked, kept: Kept) -> bool:
    try:
        _resolve(asked, kept)
    except _RefusedError:
        return False
    return True


def _resolve(asked: Asked, kept: Kept) -> Span:
    chosen = {p: at for p, at in kept.offsets.items() if not asked.partitions or p in asked.partitions}
    unknown = sorted(set(asked.partitions) - chosen.keys())
    if unknown:
        raise _RefusedError(
            f"--partition {unknown[0]}" if asked.line else f"partitions={list(asked.partitions)}",
            f"{topic_name(asked.run, asked.topic)} has {len(kept.offsets)}, counted from 0",
            replace(asked, partitions=tuple(sorted(chosen))),
        )
    if asked.begin is not None and asked.end is not None:
        _refuse_backwards(asked, asked.begin, asked.end, chosen)
    _refuse_offsets_outside(asked, chosen)
    begins = _begins(asked, chosen, kept)
    ends = _ends(asked, chosen, kept)
    if chosen and all(ends[p] < begins[p] for p in chosen):
        _refuse_ends_first(asked)
    ranges = [Range(p, begins[p], max(begins[p], ends[p])) for p in sorted(chosen)]
    if not any(map(len, ranges)):
        _refuse_all_deleted(asked, chosen, kept)
    return Span(asked.run, asked.topic, tuple(ranges))


def _begins(asked: Asked, chosen: Mapping[int, tuple[int, int]], kept: Kept) -> dict[int, int]:
    if asked.begin is None:
        return {p: first for p, (first, _) in chosen.items()}
    if isinstance(asked.begin, int):
        return dict.fromkeys(chosen, asked.begin)
    at_ms = milliseconds(asked.begin)
    found = _clipped(kept.at(at_ms), chosen)
    cut = [p for p, (first, end) in chosen.items() if 0 < first < end and found[p] == first]
    oldest = max((kept.oldest(p) for p in cut), default=at_ms)
    if oldest > at_ms:
        raise _RefusedError(
            asked.where("begin"),
            f"retention has deleted records of {topic_name(asked.run, asked.topic)} up to about {_at(oldest)}",
            replace(asked, begin=_at(oldest)),
            replace(asked, begin=_at(oldest), end=None),
        )
    return found


def _ends(asked: Asked, chosen: Mapping[int, tuple[int, int]], kept: Kept) -> dict[int, int]:
    if asked.end is None:
        return {p: end for p, (_, end) in chosen.items()}
    if isinstance(asked.end, int):
        return dict.fromkeys(chosen, asked.end)
    return _clipped(kept.at(milliseconds(asked.end)), chosen)


def _clipped(found: Mapping[int, int | None], chosen: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Offsets of a time, within what is kept. A time after the last record is the end."""
    clipped = {}
    for p, (first, end) in chosen.items():
        offset = found.get(p)
        clipped[p] = end if offset is None else min(max(offset, first), end)
    return clipped


def _refuse_backwards(asked: Asked, begin: Bound, end: Bound, chosen: Mapping[int, tuple[int, int]]) -> None:
    both_offsets = isinstance(begin, int) and isinstance(end, int)
    both_times = isinstance(begin, datetime) and isinstance(end, datetime)
    if (both_offsets or both_times) and not begin < end:  # type: ignore[operator]  # of one kind by now
        turned = replace(asked, begin=end, end=begin) if begin != end else replace(asked, end=None)
        raise _RefusedError(
            asked.where(),
            f"holds nothing: {asked.name_of('end')} is where it ends before",
            turned,
            *([] if both_times else _within(turned, chosen)),
        )


def _refuse_ends_first(asked: Asked) -> NoReturn:
    """Of an offset and a time, only the log tells which comes first."""
    raise _RefusedError(
        asked.where(),
        f"holds nothing: {asked.name_of('end')} is where it ends before",
        replace(asked, end=None),
    )


def _refuse_offsets_outside(asked: Asked, chosen: Mapping[int, tuple[int, int]]) -> None:
    name = topic_name(asked.run, asked.topic)
    for which, bound in asked.bounds():
        if not isinstance(bound, int):
            continue
        for p, (first, end) in sorted(chosen.items()):
            if bound < first:
                what = f"{name}[{p}] keeps {first} and later: retention has deleted the rest"
            elif bound > end:
                what = f"{name}[{p}] ends at {end}"
            else:
                continue
            raise _RefusedError(asked.where(which), what, *_within(asked, chosen))


def _within(asked: Asked, chosen: Mapping[int, tuple[int, int]]) -> list[Asked]:
    """What comes near: the part of it that all partitions keep, what all of them keep, the fullest one alone."""
    low, high = max(first for first, _ in chosen.values()), min(end for _, end in chosen.values())

    def clamped(bound: Bound | None) -> Bound | None:
        return min(max(bound, low), high) if isinstance(bound, int) else bound

    begin, end = clamped(asked.begin), clamped(asked.end)
    near = [replace(asked, begin=begin, end=end)] if _holds(begin, end, low, high) else []
    if low < high:
        near.append(replace(asked, begin=low, end=high))
    if len(chosen) == 1:  # nobody is told to name a partition where there is one: not every command can
        return near
    fullest = max(chosen, key=lambda p: (chosen[p][1] - chosen[p][0], -p))
    first, last = chosen[fullest]
    return [*near, replace(asked, begin=first, end=last, partitions=(fullest,))]


def _holds(begin: Bound | None, end: Bound | None, low: int, high: int) -> bool:
    """Whether clamped bounds leave something; a time may."""
    return (begin if isinstance(begin, int) else low) < (end if isinstance(end, int) else high)


def _refuse_all_deleted(asked: Asked, chosen: Mapping[int, tuple[int, int]], kept: Kept) -> None:
    """A range of times that is empty because of retention, or may be, and not because nothing was there."""
    if not any(isinstance(bound, datetime) for _, bound in asked.bounds()):
        return
    name = topic_name(asked.run, asked.topic)
    cut = [p for p, (first, end) in chosen.items() if 0 < first < end]
    if asked.begin is None and isinstance(asked.end, datetime) and cut:
        oldest = min(kept.oldest(p) for p in cut)
        raise _RefusedError(
            asked.where("end"),
            f"retention has deleted the records of {name} before about {_at(oldest)}",
            replace(asked, begin=_at(oldest), end=None),
        )
    emptied = {p: end for p, (first, end) in sorted(chosen.items()) if 0 < first == end}
    if emptied:  # when those records were made, nobody can tell any more
        kept_from = ", ".join(f"{name}[{p}] keeps {end} and later" for p, end in emptied.items())
        raise _RefusedError(
            asked.where(),
            f"nothing is kept in this range: {kept_from}; retention has deleted the rest",
            *(replace(asked, begin=end, end=None) for end in emptied.values()),
        )


def milliseconds(at: datetime) -> int:
    """ms since the epoch, rounded up: nothing before `at` is taken in."""
    return -((_EPOCH - as_utc(at)) // timedelta(milliseconds=1))


def _at(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
