"""Reads dead letters. (republish.py publishes their records again.)

They are read twice: first a summary of each (DeadLetterSummary), then the bytes of those that are wanted (DeadLetter).
Bytes and headers are untrusted. A record that was dead-lettered twice (its role crashed in between) has two dead
letters with the same origin and value, which have one summary here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from distrl.broker.dead_letters import (
    CUT_BYTES,
    CUT_LOST,
    CUT_SHA256,
    PREFIX,
    TOPIC,
    error_headers,
    origin_of,
    value_sha256,
)
from distrl.broker.producer import Headers
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition, Record, Task, Trajectory

ONE = 1
"""Dead letters read at once: each may be as large as the largest record."""

_CUT = (CUT_BYTES, CUT_LOST, CUT_SHA256)
_OURS = frozenset([*_CUT, *(name for name, _ in error_headers(LogPosition("", 0, 0), WireError("", "", "")))])


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """The summary of one dead-lettered record, without its bytes and headers."""

    position: LogPosition
    """Of its first dead letter that is not truncated, else of its first."""
    origin: LogPosition | None
    """Where the record was; None if its headers name no position."""
    value_sha256: str
    """Of its value, in hex, all of it also where the dead letter is truncated."""
    timestamp: int
    """Milliseconds since the epoch."""
    size: int
    """Bytes of the key and value that the dead letter holds."""
    cut: str
    """For people: how the dead letter was truncated; empty for a whole one."""
    reason: str
    """The class of the error."""
    error: str
    copies: int = 1
    """Dead letters of this record; more than 1 only after a crash."""

    @classmethod
    def of(cls, raw: RawRecord) -> DeadLetterSummary:
        size = len(raw.key or b"") + len(raw.value or b"")
        reason, error = (_error_header(raw, f"exception.{name}") for name in ("class.name", "message"))
        origin, sha256 = origin_of(raw.headers), value_sha256(raw)
        return cls(raw.position, origin, sha256, raw.timestamp, size, _cut(raw, size), reason, error)

    @property
    def offset(self) -> int:
        """What `distrl dlq show OFFSET` takes."""
        return self.position.offset


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead-lettered record with its bytes."""

    entry: DeadLetterSummary
    raw: RawRecord
    """As the dead-letter topic holds it."""
    headers: Headers
    """The record's own."""

    @property
    def offset(self) -> int:
        return self.entry.offset

    @property
    def origin(self) -> LogPosition | None:
        return self.entry.origin

    @property
    def cut(self) -> str:
        return self.entry.cut


def entries(config: Config) -> list[DeadLetterSummary]:
    """Every dead-lettered record that is retained, in log order. Holds the bytes of one at a time."""
    with LogReader(config, TOPIC) as reader:
        return folded(DeadLetterSummary.of(raw) for batch in reader.to_end(ONE) for raw in batch)


def dead_letters_of(config: Config, wanted: Sequence[DeadLetterSummary]) -> list[DeadLetter]:
    """The dead letters of these entries, with all their bytes, in log order.

    Raises BrokerError for one that retention has deleted since.
    """
    by_position = {entry.position: entry for entry in wanted}
    return [
        DeadLetter(by_position[raw.position], raw, own_headers(raw.headers)) for raw in _records_at(config, by_position)
    ]


def folded(found: Iterable[DeadLetterSummary]) -> list[DeadLetterSummary]:
    """One entry per record, in log order: the first that is not truncated, else the first. Pure."""
    by_record: dict[object, DeadLetterSummary] = {}
    for entry in found:
        name = entry.position if entry.origin is None else (entry.origin, entry.value_sha256)
        if (before := by_record.get(name)) is not None:
            kept = entry if before.cut and not entry.cut else before
            entry = replace(kept, copies=before.copies + 1)
        by_record[name] = entry
    return list(by_record.values())


def own_headers(headers: Headers) -> Headers:
    """The record's original headers: those of a dead letter without ours, which come last."""
    end, left = len(headers), set(_OURS)
    while end and headers[end - 1][0] in left:
        end -= 1
        left.remove(headers[end][0])
    return tuple(headers[:end])


def chosen(found: Sequence[DeadLetterSummary], offsets: Sequence[int]) -> list[DeadLetterSummary]:
    """The entries with these offsets, in log order. Raises BrokerError for an unknown offset."""
    by_offset = {entry.offset: entry for entry in found}
    for offset in offsets:
        if offset not in by_offset:
            raise BrokerError(f"dead letter {offset}", "there is none", "`distrl dlq ls` lists all dead letters")
    return [by_offset[offset] for offset in sorted(set(offsets))]


def reading(dead_letter: DeadLetter, config: Config) -> Record:
    """The record in a dead letter, decoded by the present code. Raises WireError if it still cannot be."""
    kind = kind_of(dead_letter, config)
    if dead_letter.cut:
        raise WireError("dead letter", dead_letter.cut, "have its producer send the record again")
    if kind is None:
        raise WireError("dead letter", "its headers name no topic of tasks or trajectories", "see its headers")
    return decoded(dead_letter.raw, kind)


def kind_of(dead_letter: DeadLetter, config: Config) -> type[Task] | type[Trajectory] | None:
    """The record type of the topic it came from; None for topics other than tasks and trajectories."""
    name = short_name(dead_letter, config)
    kind = TOPICS[name].record if name is not None else None
    return kind if kind in (Task, Trajectory) else None


def short_name(dead_letter: DeadLetter, config: Config) -> str | None:
    full = dead_letter.origin.topic if dead_letter.origin is not None else None
    return next((name for name in TOPICS if topic_name(config.run, name) == full), None)


def _cut(raw: RawRecord, size: int) -> str:
    ours = dict(raw.headers[len(own_headers(raw.headers)) :])
    if CUT_BYTES not in ours:
        return ""
    whole, lost, sha256 = ((ours.get(name) or b"?").decode(errors="replace") for name in _CUT)
    kept = f"{size} of {whole} bytes"
    return f"it was too large and is truncated to {kept} (lost: {lost}; sha256 of the value: {sha256})"


def _error_header(raw: RawRecord, name: str) -> str:
    """The dead letter's header `__connect.errors.<name>`; empty if it has none."""
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
