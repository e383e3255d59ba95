"""Resolves `--from … --to …` to offsets: an offset or a time at each end, on every partition of a topic.

Words. A *bound* is an offset (int) or a time (datetime); one that is left out is the end of what the broker has.
A *topic range* is what the bounds mean now, [first, to) in offsets on each partition, so that it can be read again.
Pure: the broker's answers come in as `TopicOffsets`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NoReturn, Protocol

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
class RangeRequest:
    """The range that a person or a program wants."""

    run: str
    topic: str = "trajectories"
    begin: Bound | None = None
    end: Bound | None = None
    partitions: Sequence[int] = ()
    """Empty: all."""
    line: Sequence[str] = ()
    """The words of the command line without the range, so that a hint can show a whole command. Empty for programs,
    whose hints name the arguments `begin`, `end` and `partitions`."""

    def hint(self) -> str:
        """How to ask for this range: the whole command line, or the arguments of a program."""
        given = [("--partition", str(each)) for each in self.partitions] if self.line else []
        given += [(self.name_of(end), written(bound)) for end, bound in self.bounds()]
        if self.line:
            return shlex.join([*self.line, *(word for pair in given for word in pair)])
        arguments = [f"{name}={value if value.isdigit() else repr(value)}" for name, value in given]
        arguments += [f"partitions={list(self.partitions)}"] if self.partitions else []
        return f"ask for {', '.join(arguments)}" if arguments else "ask without bounds, for the whole log"

    def where(self, *ends: End) -> str:
        """These ends of the range (both if none is named), as they were given."""
        between = " " if self.line else "="
        given = [(end, bound) for end, bound in self.bounds() if not ends or end in ends]
        return " ".join(f"{self.name_of(end)}{between}{written(bound)}" for end, bound in given)

    def name_of(self, end: End) -> str:
        """The flag or argument of this end of the range."""
        return _FLAGS[end] if self.line else end

    def bounds(self) -> list[tuple[End, Bound]]:
        """The ends that are given."""
        ends: tuple[tuple[End, Bound | None], ...] = (("begin", self.begin), ("end", self.end))
        return [(end, bound) for end, bound in ends if bound is not None]


@dataclass(frozen=True, slots=True)
class Range:
    """The records [first, to) of one partition. In compacted or transactional topics some offsets hold no record."""

    partition: int
    first: int
    to: int

    def __len__(self) -> int:
        return self.to - self.first


@dataclass(frozen=True, slots=True)
class TopicRange:
    """What is read of a topic."""

    run: str
    topic: str
    """A key of TOPICS."""
    ranges: tuple[Range, ...]
    """In the order of the partitions."""

    @property
    def name(self) -> str:
        """The topic's full name."""
        return topic_name(self.run, self.topic)

    def to_dict(self) -> dict[str, Any]:
        """As the manifest of an export has it."""
        ranges = [{"partition": each.partition, "from": each.first, "to": each.to} for each in self.ranges]
        return {"run": self.run, "topic": self.name, "ranges": ranges}

    def __len__(self) -> int:
        """Offsets in it: the records, or more."""
        return sum(map(len, self.ranges))

    @property
    def sync_seed(self) -> str:
        """What an Avro export's sync marker is made of. Changing this text changes the bytes of exports."""
        return f"Span(run={self.run!r}, topic={self.topic!r}, ranges={self.ranges!r})"


class TopicOffsets(Protocol):
    """The offsets that the broker has of a topic."""

    @property
    def offsets(self) -> Mapping[int, tuple[int, int]]:
        """Partition -> (offset of the first record, one past the last)."""
        ...

    def at(self, at_ms: int) -> Mapping[int, int | None]:
        """Partition -> offset of its first record of that time (ms) or later; None where it has none."""
        ...

    def oldest(self, partition: int) -> int:
        """Time of the partition's first record, ms. Only for partitions that hold one."""
        ...


def bound_of(text: str, now: datetime) -> Bound:
    """The bound that a person wrote. Raises ConfigError, which lists the forms."""
    stripped = text.strip()
    ago = _AGO.fullmatch(stripped)
    try:
        if stripped.isascii() and stripped.isdigit():
            return int(stripped)  # Python refuses thousands of digits
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2]]: float(ago[1])})
        return as_utc(datetime.fromisoformat(stripped))
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
    """where, what, and requests to suggest instead, the nearest first."""

    def __init__(self, where: str, what: str, *instead: RangeRequest) -> None:
        super().__init__(where, what)
        self.where, self.what, self.instead = where, what, instead


def resolve(request: RangeRequest, offsets: TopicOffsets) -> TopicRange:
    """The offsets of `request` now.

    Raises ConfigError for a range that the broker does not have, that is empty by its bounds, or that names a partition
    that does not exist. Its hint is a command that works; for a program, the arguments.
    """
    try:
        return _resolve(request, offsets)
    except _RefusedError as refused:
        working = (each for each in refused.instead if _works(each, offsets))
        everything = replace(request, begin=None, end=None, partitions=())
        raise ConfigError(refused.where, refused.what, next(working, everything).hint()) from None


def _works(request: RangeRequest, offsets: TopicOffsets) -> bool:
    try:
        _resolve(request, offsets)
    except _RefusedError:
        return False
    return True


def _resolve(request: RangeRequest, offsets: TopicOffsets) -> TopicRange:
    chosen = {p: at for p, at in offsets.offsets.items() if not request.partitions or p in request.partitions}
    unknown = sorted(set(request.partitions) - chosen.keys())
    if unknown:
        raise _RefusedError(
            f"--partition {unknown[0]}" if request.line else f"partitions={list(request.partitions)}",
            f"{topic_name(request.run, request.topic)} has {len(offsets.offsets)} partitions, counted from 0",
            replace(request, partitions=tuple(sorted(chosen))),
        )
    if request.begin is not None and request.end is not None:
        _refuse_backwards(request, request.begin, request.end, chosen)
    _refuse_offsets_outside(request, chosen)
    begins = _begins(request, chosen, offsets)
    ends = _ends(request, chosen, offsets)
    if chosen and all(ends[p] < begins[p] for p in chosen):
        _refuse_ends_first(request)
    ranges = [Range(p, begins[p], max(begins[p], ends[p])) for p in sorted(chosen)]
    if not any(map(len, ranges)):
        _refuse_all_deleted(request, chosen, offsets)
    return TopicRange(request.run, request.topic, tuple(ranges))


def _begins(request: RangeRequest, chosen: Mapping[int, tuple[int, int]], offsets: TopicOffsets) -> dict[int, int]:
    if request.begin is None:
        return {p: first for p, (first, _) in chosen.items()}
    if isinstance(request.begin, int):
        return dict.fromkeys(chosen, request.begin)
    at_ms = milliseconds(request.begin)
    found = _clipped(offsets.at(at_ms), chosen)
    cut = [p for p, (first, end) in chosen.items() if 0 < first < end and found[p] == first]
    oldest = max((offsets.oldest(p) for p in cut), default=at_ms)
    if oldest > at_ms:
        raise _RefusedError(
            request.where("begin"),
            f"retention has deleted records of {topic_name(request.run, request.topic)} up to about {_at(oldest)}",
            replace(request, begin=_at(oldest)),
            replace(request, begin=_at(oldest), end=None),
        )
    return found


def _ends(request: RangeRequest, chosen: Mapping[int, tuple[int, int]], offsets: TopicOffsets) -> dict[int, int]:
    if request.end is None:
        return {p: end for p, (_, end) in chosen.items()}
    if isinstance(request.end, int):
        return dict.fromkeys(chosen, request.end)
    return _clipped(offsets.at(milliseconds(request.end)), chosen)


def _clipped(found: Mapping[int, int | None], chosen: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """Offsets of a time, within what the broker has. A time after the last record is the end."""
    clipped = {}
    for p, (first, end) in chosen.items():
        offset = found.get(p)
        clipped[p] = end if offset is None else min(max(offset, first), end)
    return clipped


def _refuse_backwards(request: RangeRequest, begin: Bound, end: Bound, chosen: Mapping[int, tuple[int, int]]) -> None:
    both_offsets = isinstance(begin, int) and isinstance(end, int)
    both_times = isinstance(begin, datetime) and isinstance(end, datetime)
    if (both_offsets or both_times) and not begin < end:  # type: ignore[operator]  # of one kind by now
        turned = replace(request, begin=end, end=begin) if begin != end else replace(request, end=None)
        raise _RefusedError(
            request.where(),
            f"holds nothing: {request.name_of('end')} is exclusive and must come after {request.name_of('begin')}",
            turned,
            *([] if both_times else _within(turned, chosen)),
        )


def _refuse_ends_first(request: RangeRequest) -> NoReturn:
    """Called once the log has shown that the range, of an offset and a time, is empty."""
    raise _RefusedError(
        request.where(),
        f"holds nothing: {request.name_of('end')} is exclusive and must come after {request.name_of('begin')}",
        replace(request, end=None),
    )


def _refuse_offsets_outside(request: RangeRequest, chosen: Mapping[int, tuple[int, int]]) -> None:
    name = topic_name(request.run, request.topic)
    for which, bound in request.bounds():
        if not isinstance(bound, int):
            continue
        for p, (first, end) in sorted(chosen.items()):
            if bound < first:
                what = f"{name}[{p}] keeps {first} and later: retention has deleted the rest"
            elif bound > end:
                what = f"{name}[{p}] ends at {end}"
            else:
                continue
            raise _RefusedError(request.where(which), what, *_within(request, chosen))


def _within(request: RangeRequest, chosen: Mapping[int, tuple[int, int]]) -> list[RangeRequest]:
    """Requests near `request`: the part of it that all partitions have, the range that all have, the fullest partition
    alone."""
    low, high = max(first for first, _ in chosen.values()), min(end for _, end in chosen.values())

    def clamped(bound: Bound | None) -> Bound | None:
        return min(max(bound, low), high) if isinstance(bound, int) else bound

    begin, end = clamped(request.begin), clamped(request.end)
    near = [replace(request, begin=begin, end=end)] if _holds(begin, end, low, high) else []
    if low < high:
        near.append(replace(request, begin=low, end=high))
    if len(chosen) == 1:  # not every command has --partition, so do not suggest it needlessly
        return near
    fullest = max(chosen, key=lambda p: (chosen[p][1] - chosen[p][0], -p))
    first, last = chosen[fullest]
    return [*near, replace(request, begin=first, end=last, partitions=(fullest,))]


def _holds(begin: Bound | None, end: Bound | None, low: int, high: int) -> bool:
    """Whether clamped bounds leave an offset; with a time among them, whether they may."""
    return (begin if isinstance(begin, int) else low) < (end if isinstance(end, int) else high)


def _refuse_all_deleted(request: RangeRequest, chosen: Mapping[int, tuple[int, int]], offsets: TopicOffsets) -> None:
    """Refuse a range of times that is, or may be, empty because of retention, and not because nothing was there."""
    if not any(isinstance(bound, datetime) for _, bound in request.bounds()):
        return
    name = topic_name(request.run, request.topic)
    cut = [p for p, (first, end) in chosen.items() if 0 < first < end]
    if request.begin is None and isinstance(request.end, datetime) and cut:
        oldest = min(offsets.oldest(p) for p in cut)
        raise _RefusedError(
            request.where("end"),
            f"retention has deleted the records of {name} before about {_at(oldest)}",
            replace(request, begin=_at(oldest), end=None),
        )
    emptied = {p: end for p, (first, end) in sorted(chosen.items()) if 0 < first == end}
    if emptied:  # the times of the deleted records are unknown
        starts = ", ".join(f"{name}[{p}] keeps {end} and later" for p, end in emptied.items())
        raise _RefusedError(
            request.where(),
            f"nothing is kept in this range: {starts}; retention has deleted the rest",
            *(replace(request, begin=end, end=None) for end in emptied.values()),
        )


def milliseconds(at: datetime) -> int:
    """ms since the epoch, rounded up, so that nothing before `at` is included."""
    return -((_EPOCH - as_utc(at)) // timedelta(milliseconds=1))


def _at(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)
