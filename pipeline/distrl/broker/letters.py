"""Dead letters, read back: what is in them. (retry.py publishes their records again.)

Their bytes and headers are whatever somebody sent. A record that was put aside twice (its role crashed in between) has
two letters that name one origin: they are one Letter here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from distrl.broker.deadletters import CUT_BYTES, CUT_LOST, CUT_SHA256, PREFIX, TOPIC, error_headers, origin_of
from distrl.broker.producer import Headers
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition, Record, Task, Trajectory

_CUT = (CUT_BYTES, CUT_LOST, CUT_SHA256)
_OURS = frozenset([*_CUT, *(name for name, _ in error_headers(LogPosition("", 0, 0), WireError("", "", "")))])


@dataclass(frozen=True, slots=True)
class Letter:
    """One record that was put aside.

    raw: its first letter that is not cut, else its first, as the dead-letter topic holds it. origin: where the record
    stood; None where its headers name no place. headers: the record's own. copies: the letters that hold it, 1 but
    after a crash.
    """

    raw: RawRecord
    origin: LogPosition | None
    headers: Headers
    copies: int = 1

    @property
    def offset(self) -> int:
        """Its name: `distrl dlq show OFFSET`."""
        return self.raw.position.offset

    @property
    def size(self) -> int:
        """Bytes of the key and value that are kept."""
        return len(self.raw.key or b"") + len(self.raw.value or b"")

    @property
    def cut(self) -> str:
        """What a letter that holds less than its record says of that; empty for a whole one."""
        ours = dict(self.raw.headers[len(self.headers) :])
        if CUT_BYTES not in ours:
            return ""
        whole, lost, sha256 = ((ours.get(name) or b"?").decode(errors="replace") for name in _CUT)
        kept = f"{self.size} of {whole} bytes"
        return f"it was too large and is cut to {kept} (lost: {lost}; sha256 of the value: {sha256})"

    def said(self, name: str) -> str:
        """What the letter's header `__connect.errors.<name>` says; empty where it has none."""
        found = [value for header, value in self.raw.headers if header == f"{PREFIX}{name}"]
        return (found[-1] or b"").decode(errors="replace") if found else ""


def letters(config: Config) -> list[Letter]:
    """Every letter that the broker keeps, folded by origin, in the order of the log."""
    with LogReader(config, TOPIC) as reader:
        return folded(raw for batch in reader.to_end() for raw in batch)


def folded(found: Iterable[RawRecord]) -> list[Letter]:
    """One letter for each origin, in the order of the log: the first that is whole, else the first. Pure."""
    by_origin: dict[object, Letter] = {}
    for raw in found:
        origin = origin_of(raw.headers)
        name, letter = origin or raw.position, Letter(raw, origin, own_headers(raw.headers))
        if (before := by_origin.get(name)) is not None:
            kept = letter if before.cut and not letter.cut else before
            letter = replace(kept, copies=before.copies + 1)
        by_origin[name] = letter
    return list(by_origin.values())


def own_headers(headers: Headers) -> Headers:
    """The headers that the record had: those of a letter without the run of ours at their end."""
    end, left = len(headers), set(_OURS)
    while end and headers[end - 1][0] in left:
        end -= 1
        left.remove(headers[end][0])
    return tuple(headers[:end])


def chosen(found: Sequence[Letter], offsets: Sequence[int]) -> list[Letter]:
    """The letters with these offsets, in the order of the log. Raises BrokerError for one that is none."""
    by_offset = {letter.offset: letter for letter in found}
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
