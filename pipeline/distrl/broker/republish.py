"""Publishes the records of dead letters again to where they came from, each at most once.

A republished record names its origin in a header, so the log itself shows what was republished. Of two concurrent
retries, the later fences the earlier and only then reads the log.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from distrl.broker.dead_letter_log import DeadLetter, kind_of, short_name
from distrl.broker.fenced import FencedError, FencedProducer, this_process
from distrl.broker.producer import Headers, RecordTooLargeError
from distrl.broker.reader import LogReader, RawRecord
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import LogPosition

RETRY_OF = "distrl.retry.of"
"""Header of a republished record: the origin of its dead letter."""
RETRY_BY = "distrl.retry.by"
"""Header of a republished record: the process that published it, for people only."""
LONGEST_NUMBER = 19
"""Digits of an offset."""
NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Retried:
    """The outcome of one dead letter."""

    dead_letter: DeadLetter
    at: LogPosition | None = None
    """Where its record was published, now or before; None if it was not, or if the broker does not report it."""
    before: bool = False
    """Published by an earlier retry."""
    refused: str = ""
    """Why it was not published; empty if it was."""


def retry(found: Sequence[DeadLetter], config: Config, dry_run: bool = False) -> list[Retried]:
    """Publish the records of `found` again, to the topic and partition that each came from.

    Only to topics of tasks or trajectories of this run. Never twice: the whole log from the origin on is searched for
    the record first, and the broker refuses a retry once another one has started.
    dry_run: only report what would be done, and fence nobody; `at` is then None.
    Raises FencedError if another retry has taken over, else BrokerError; running it again continues where it stopped.
    """

    @cache
    def partitions(topic: str) -> Collection[int]:
        with LogReader(config, topic) as reader:
            return frozenset(reader.ends)

    refusals = {dead_letter.offset: _refusal(dead_letter, config, partitions) for dead_letter in found}
    wanted = [dead_letter for dead_letter in found if not refusals[dead_letter.offset]]
    with ExitStack() as stack:
        producer = FencedProducer(config, "dlq", "the retry of dead letters", lambda: _fenced(wanted, config))
        if wanted and not dry_run:
            stack.enter_context(producer)
        before = retried_before(wanted, config)  # now that nobody else can publish
        return [
            Retried(dead_letter, refused=refusals[dead_letter.offset])
            if refusals[dead_letter.offset]
            else Retried(dead_letter, before[dead_letter.origin], before=True)
            if dead_letter.origin in before
            else Retried(dead_letter)
            if dry_run
            else _published(dead_letter, producer)
            for dead_letter in found
        ]


def retried_before(found: Sequence[DeadLetter], config: Config) -> Mapping[LogPosition | None, LogPosition]:
    """Origin of a dead letter -> where its record was published again, for those that were."""
    places: dict[LogPosition | None, LogPosition] = {}
    for raw in _since_origins(found, config):
        for origin in retried_from(raw.headers):
            places.setdefault(origin, raw.position)
    return places


def retry_headers(origin: LogPosition) -> Headers:
    """The headers that a republished record has in addition to its own."""
    of = f"{origin.topic}/{origin.partition}/{origin.offset}"
    return (RETRY_OF, of.encode()), (RETRY_BY, this_process().encode())


def retried_from(headers: Headers) -> Iterator[LogPosition]:
    """The origins that a republished record's headers name."""
    for name, value in headers:
        if name == RETRY_OF:
            topic, _, rest = (value or b"").decode(errors="replace").partition("/")
            partition, _, offset = rest.partition("/")
            if all(number.isdecimal() and len(number) <= LONGEST_NUMBER for number in (partition, offset)):
                yield LogPosition(topic, int(partition), int(offset))


def _since_origins(found: Sequence[DeadLetter], config: Config) -> Iterator[RawRecord]:
    """The records of each partition that a dead letter came from, from the first origin to the end."""
    firsts: dict[str, dict[int, int]] = defaultdict(dict)
    for dead_letter in found:
        if dead_letter.origin is not None and (name := short_name(dead_letter, config)) is not None:
            starts = firsts[name]
            partition, offset = dead_letter.origin.partition, dead_letter.origin.offset
            starts[partition] = min(starts.get(partition, offset), offset)
    for name, starts in firsts.items():
        with LogReader(config, name) as whole:
            start = dict(whole.ends)
            for partition, offset in starts.items():
                if partition in start:
                    start[partition] = min(max(offset, whole.next_offsets[partition]), start[partition])
        with LogReader(config, name, start) as reader:
            for batch in reader.to_end():
                yield from batch


def _published(dead_letter: DeadLetter, producer: FencedProducer) -> Retried:
    """Refused if it exceeds the present kafka.max_record_bytes; later ones are still published."""
    origin = dead_letter.origin
    assert origin is not None, "a dead letter without an origin was refused before"
    headers = [*dead_letter.headers, *retry_headers(origin)]
    try:
        at = producer.write(origin.topic, dead_letter.raw.key, dead_letter.raw.value, headers, origin.partition)
    except RecordTooLargeError as error:
        return Retried(dead_letter, refused=f"{error.what}; {error.hint}")
    return Retried(dead_letter, at)


def _fenced(wanted: Sequence[DeadLetter], config: Config) -> FencedError:
    """The error of a fenced retry; names the other one if that has published anything yet."""
    try:
        sent = [dict(raw.headers).get(RETRY_BY) for raw in _since_origins(wanted, config)]
        names = [_printable(who) for who in sent if who is not None]
        who = next((who for who in reversed(names) if who != this_process()), "one that has published nothing yet")
    except BrokerError as unreadable:
        who = f"its name cannot be read: {unreadable.what}"
    return FencedError(
        f"dead letters of run {config.run}",
        f"another `distrl dlq retry` has taken over ({who}); this one publishes nothing more",
        f"once the other has ended, run `distrl dlq retry --all --run {config.run}`: nothing is published twice",
    )


def _printable(name: bytes) -> str:
    """Headers are untrusted."""
    return "".join(c if c.isprintable() else "?" for c in name.decode(errors="replace")[:NAME_CHARACTERS])


def _refusal(dead_letter: DeadLetter, config: Config, partitions: Callable[[str], Collection[int]]) -> str:
    """Why its record may not be published again; empty if it may."""
    if dead_letter.cut:
        return f"{dead_letter.cut}; have its producer send the record again"
    if dead_letter.origin is None:
        return "its headers do not name its origin"
    name = short_name(dead_letter, config)
    if name is None or kind_of(dead_letter, config) is None:
        topic = dead_letter.origin.topic
        return f"it came from {topic}, which is not a topic of tasks or trajectories of run {config.run}"
    if dead_letter.origin.partition not in partitions(name):
        return f"{dead_letter.origin.topic} has no partition {dead_letter.origin.partition}"
    return ""
