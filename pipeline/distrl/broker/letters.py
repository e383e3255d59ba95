"""Dead letters, read back: what is in them, and their records published again where they came from.

Their bytes and headers are whatever somebody sent. A record that was put aside twice (its role crashed in between) has
two letters that name one origin: they are one Letter here, and it is published again once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import dataclass
from functools import cache

from distrl.broker.deadletters import CUT_BYTES, CUT_LOST, CUT_SHA256, PREFIX, TOPIC, error_headers, origin_of
from distrl.broker.producer import Headers, RecordProducer
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition, Record, Task, Trajectory

RETRY_OF = "distrl.retry.of"
"""The header of a record that was published again: the origin of its letter. The log itself thus says what was."""

_CUT = (CUT_BYTES, CUT_LOST, CUT_SHA256)
_OURS = frozenset([*_CUT, *(name for name, _ in error_headers(LogPosition("", 0, 0), WireError("", "", "")))])


@dataclass(frozen=True, slots=True)
class Letter:
    """One record that was put aside.

    raw: its first letter, as the dead-letter topic holds it. origin: where the record stood; None where its headers
    name no place. headers: the record's own. copies: the letters that hold it, 1 but after a crash.
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


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of one letter. at: where its record was published, now or (`before`) by an earlier retry."""

    letter: Letter
    at: LogPosition | None = None
    before: bool = False
    refused: str = ""


def letters(config: Config) -> list[Letter]:
    """Every letter that the broker keeps, folded by origin, in the order of the log."""
    found: dict[object, Letter] = {}
    with LogReader(config, TOPIC) as reader:
        for batch in reader.to_end():
            for raw in batch:
                origin = origin_of(raw.headers)
                name = origin or raw.position
                first = found.get(name)
                found[name] = Letter(
                    first.raw if first else raw, origin, own_headers(raw.headers), first.copies + 1 if first else 1
                )
    return list(found.values())


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
    kind = _kind(letter, config)
    if letter.cut:
        raise WireError("dead letter", letter.cut, "have its author send the record again")
    if kind is None:
        raise WireError("dead letter", "its headers name no topic that can be read again", "see its headers")
    return decoded(letter.raw, kind)


def retry(found: Sequence[Letter], config: Config, dry_run: bool = False) -> list[Retried]:
    """Publish the records of `found` again, to the topic and partition that each came from.

    Only to a topic of this run that holds tasks or trajectories. Never twice: a record published again names its origin
    in a header, and the log from that origin on is read for it first, however long ago that was. (Two retries at the
    very same moment may both publish; readers skip the second record by its id.)
    dry_run: say what would be done; `at` is then None.
    Raises BrokerError; running it again goes on where it ended.
    """

    @cache
    def partitions(topic: str) -> Collection[int]:
        with LogReader(config, topic) as reader:
            return frozenset(reader.ends)

    refusals = {letter.offset: _refusal(letter, config, partitions) for letter in found}
    wanted = [letter for letter in found if not refusals[letter.offset]]
    before = retried_before(wanted, config)
    with RecordProducer(config, "distrl-dlq") as producer:
        return [
            Retried(letter, refused=refusals[letter.offset])
            if refusals[letter.offset]
            else Retried(letter, before[letter.origin], before=True)
            if letter.origin in before
            else Retried(letter, None if dry_run else _publish(letter, producer, config))
            for letter in found
        ]


def retried_before(found: Sequence[Letter], config: Config) -> Mapping[LogPosition | None, LogPosition]:
    """Origin of a letter -> where its record was published again, for those that were."""
    firsts: dict[str, dict[int, int]] = defaultdict(dict)
    for letter in found:
        if letter.origin is not None and (name := _short_name(letter, config)) is not None:
            starts = firsts[name]
            partition, offset = letter.origin.partition, letter.origin.offset
            starts[partition] = min(starts.get(partition, offset), offset)
    places: dict[LogPosition | None, LogPosition] = {}
    for name, starts in firsts.items():
        for raw in _since(config, name, starts):
            for origin in _retry_of(raw.headers):
                places.setdefault(origin, raw.position)
    return places


def retry_header(origin: LogPosition) -> tuple[str, bytes]:
    return RETRY_OF, f"{origin.topic}/{origin.partition}/{origin.offset}".encode()


def _retry_of(headers: Headers) -> Iterator[LogPosition]:
    for name, value in headers:
        if name == RETRY_OF:
            topic, _, rest = (value or b"").decode(errors="replace").partition("/")
            partition, _, offset = rest.partition("/")
            if partition.isdecimal() and offset.isdecimal():
                yield LogPosition(topic, int(partition), int(offset))


def _since(config: Config, name: str, starts: Mapping[int, int]) -> Iterator[RawRecord]:
    """The records of the partitions in `starts`, from those offsets to the end."""
    with LogReader(config, name) as whole:
        start = dict(whole.ends)
        for partition, offset in starts.items():
            if partition in start:
                start[partition] = min(max(offset, whole.next_offsets[partition]), start[partition])
    with LogReader(config, name, start) as reader:
        for batch in reader.to_end():
            yield from batch


def _publish(letter: Letter, producer: RecordProducer, config: Config) -> LogPosition:
    origin = letter.origin
    assert origin is not None, "a letter without an origin was refused before"
    headers = [*letter.headers, retry_header(origin)]
    future = producer.publish_bytes(origin.topic, letter.raw.key, letter.raw.value, headers, partition=origin.partition)
    try:
        return future.result(config.kafka.connect_timeout_s)
    except NotYetError:
        raise BrokerError(
            origin.topic,
            f"record of dead letter {letter.offset} not acknowledged within {config.kafka.connect_timeout_s:g} s",
            "see whether the broker runs (`distrl doctor`) and retry again: what has arrived is not published twice",
        ) from None


def _refusal(letter: Letter, config: Config, partitions: Callable[[str], Collection[int]]) -> str:
    """Why its record may not be published again; empty where it may."""
    if letter.cut:
        return f"{letter.cut}; have its author send the record again"
    if letter.origin is None:
        return "its headers do not say where it came from"
    name = _short_name(letter, config)
    if name is None or _kind(letter, config) is None:
        return f"it came from {letter.origin.topic}, which is no topic of tasks or trajectories of run {config.run}"
    if letter.origin.partition not in partitions(name):
        return f"{letter.origin.topic} has no partition {letter.origin.partition}"
    return ""


def _kind(letter: Letter, config: Config) -> type[Task] | type[Trajectory] | None:
    """What the letter's topic holds. The others are written by the learner alone, or kept for people."""
    name = _short_name(letter, config)
    kind = TOPICS[name].record if name is not None else None
    return kind if kind in (Task, Trajectory) else None


def _short_name(letter: Letter, config: Config) -> str | None:
    full = letter.origin.topic if letter.origin is not None else None
    return next((name for name in TOPICS if topic_name(config.run, name) == full), None)
