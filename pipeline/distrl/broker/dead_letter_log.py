"""Dead letters, read back: what is in them. (retry.py publishes their records again.)

They are read twice: first what is told of each (an Entry), then the bytes of those that are wanted (a Letter). Their
bytes and headers are whatever somebody sent. A record that was put aside twice (its role crashed in between) has two
letters that name one origin: they are one Entry here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from distrl.broker.dead_letters import CUT_BYTES, CUT_LOST, CUT_SHA256, PREFIX, TOPIC, error_headers, origin_of
from distrl.broker.producer import Headers
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition, Record, Task, Trajectory

ONE = 1
"""Letters that are read at once: each may be as large as a record can be."""

_CUT = (CUT_BYTES, CUT_LOST, CUT_SHA256)
_OURS = frozenset([*_CUT, *(name for name, _ in error_headers(LogPosition("", 0, 0), WireError("", "", "")))])


@dataclass(frozen=True, slots=True)
class Entry:
    """What is told of one record that was put aside; its bytes and headers stay in the log.

    position: of its first letter that is not cut, else of its first. origin: where the record stood; None where its
    headers name no place. timestamp: ms since the epoch. size: bytes of the key and value that are kept. cut: what a
    letter that holds less than its record says of that, empty for a whole one. reason, error: the class and the words
    of what was wrong. copies: the letters that hold it, 1 but after a crash.
    """

    position: LogPosition
    origin: LogPosition | None
    timestamp: int
    size: int
    cut: str
    reason: str
    error: str
    copies: int = 1

    @classmethod
    def of(cls, raw: RawRecord) -> Entry:
        size = len(raw.key or b"") + len(raw.value or b"")
        reason, error = (_said(raw, f"exception.{name}") for name in ("class.name", "message"))
        return cls(raw.position, origin_of(raw.headers), raw.timestamp, size, _cut(raw, size), reason, error)

    @property
    def offset(self) -> int:
        """Its name: `distrl dlq show OFFSET`."""
        return self.position.offset


@dataclass(frozen=True, slots=True)
class Letter:
    """One record that was put aside, whole. raw: as the dead-letter topic holds it. headers: the record's own."""

    entry: Entry
    raw: RawRecord
    headers: Headers

    @property
    def offset(self) -> int:
        return self.entry.offset

    @property
    def origin(self) -> LogPosition | None:
        return self.entry.origin

    @property
    def cut(self) -> str:
        return self.entry.cut


def entries(config: Config) -> list[Entry]:
    """Every record that was put aside and is kept, in the order of the log. Holds the bytes of one at a time."""
    with LogReader(config, TOPIC) as reader:
        return folded(Entry.of(raw) for batch in reader.to_end(ONE) for raw in batch)


def letters(config: Config, wanted: Sequence[Entry]) -> list[Letter]:
    """The letters of these entries, with all their bytes, in the order of the log.

    Raises BrokerError for one that retention has deleted since.
    """
    by_position = {entry.position: entry for entry in wanted}
    return [
        Letter(by_position[raw.position], raw, own_headers(raw.headers)) for raw in _records_at(config, by_position)
    ]


def folded(found: Iterable[Entry]) -> list[Entry]:
    """One entry for each origin, in the order of the log: the first that is whole, else the first. Pure."""
    by_origin: dict[object, Entry] = {}
    for entry in found:
        name = entry.origin or entry.position
        if (before := by_origin.get(name)) is not None:
            kept = entry if before.cut and not entry.cut else before
            entry = replace(kept, copies=before.copies + 1)
        by_origin[name] = entry
    return list(by_origin.values())


def own_headers(headers: Headers) -> Headers:
    """The headers that the record had: those of a letter without the run of ours at their end."""
    end, left = len(headers), set(_OURS)
    while end and headers[end - 1][0] in left:
        end -= 1
        left.remove(headers[end][0])
    return tuple(headers[:end])


def chosen(found: Sequence[Entry], offsets: Sequence[int]) -> list[Entry]:
    """The entries with these offsets, in the order of the log. Raises BrokerError for one that is none."""
    by_offset = {entry.offset: entry for entry in found}
    for offset in offsets:
        if offset not in by_offset:
            raise BrokerError(f"dead letter {offset}", "there is none", "`distrl dlq ls` lists those that there are")
    return [by_offset[offset] for offset in sorted(set(offsets))]


def reading(letter: Letter, config: Config) -> Record:
    """The record in a letter, as this code reads it now. Raises WireError where it still cannot."""
    kind = kind_of(letter, config)
    if letter.cut:
        raise WireError("dead letter", letter.cut, "have its author send the record again")
    if kind is None:
        raise WireError("dead letter", "its headers name no topic that can be read again", "see its headers")
    return decoded(letter.raw, kind)


def kind_of(letter: Letter, config: Config) -> type[Task] | type[Trajectory] | None:
    """What the letter's topic holds. The others are written by the learner alone, or kept for people."""
    name = short_name(letter, config)
    kind = TOPICS[name].record if name is not None else None
    return kind if kind in (Task, Trajectory) else None


def short_name(letter: Letter, config: Config) -> str | None:
    full = letter.origin.topic if letter.origin is not None else None
    return next((name for name in TOPICS if topic_name(config.run, name) == full), None)


def _cut(raw: RawRecord, size: int) -> str:
    ours = dict(raw.headers[len(own_headers(raw.headers)) :])
    if CUT_BYTES not in ours:
        return ""
    whole, lost, sha256 = ((ours.get(name) or b"?").decode(errors="replace") for name in _CUT)
    kept = f"{size} of {whole} bytes"
    return f"it was too large and is cut to {kept} (lost: {lost}; sha256 of the value: {sha256})"


def _said(raw: RawRecord, name: str) -> str:
    """What the letter's header `__connect.errors.<name>` says; empty where it has none."""
    found = [value for header, value in raw.headers if header == f"{PREFIX}{name}"]
    return (found[-1] or b"").decode(errors="replace") if found else ""


def _records_at(config: Config, positions: Collection[LogPosition]) -> Iterator[RawRecord]:
    left = set(positions)
    if not left:
        return
    firsts: dict[int, int] = {}
    for at in left:
        firsts[at.partition] = min(at.offset, firsts.get(at.partition, at.offset))
    with LogReader(config, TOPIC, firsts) as reader:
        for batch in reader.to_end(ONE):
            for raw in batch:
                if raw.position in left:
                    left.remove(raw.position)
                    yield raw
            if not left:
                return
