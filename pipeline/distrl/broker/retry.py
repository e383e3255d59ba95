"""The records of dead letters, published again where they came from; none of them twice, whoever tries, and how often.

A record that was published again names its origin in a header, so the log itself says what was. Two retries at once
cannot both do it: the later one to begin fences the earlier, and only then reads what the log says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from distrl.broker.dead_letter_log import Letter, kind_of, short_name
from distrl.broker.fenced import FencedError, FencedProducer, this_process
from distrl.broker.producer import Headers, RecordTooLargeError
from distrl.broker.reader import LogReader, RawRecord
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import LogPosition

RETRY_OF = "distrl.retry.of"
"""The header of a record that was published again: the origin of its letter."""
RETRY_BY = "distrl.retry.by"
"""And who has published it, for a person to look for; nothing is computed from it."""
LONGEST_NUMBER = 19
"""Digits of an offset."""
NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Retried:
    """What became of one letter. at: where its record was published, now or (`before`) by an earlier retry; None where
    it was not, or where the broker does not tell the place.
    """

    letter: Letter
    at: LogPosition | None = None
    before: bool = False
    refused: str = ""


def retry(found: Sequence[Letter], config: Config, dry_run: bool = False) -> list[Retried]:
    """Publish the records of `found` again, to the topic and partition that each came from.

    Only to a topic of this run that holds tasks or trajectories. Never twice: the log from the origin on is read for
    the record first, however long ago it was published again, and a retry that another one has begun beside is refused
    by the broker from then on.
    dry_run: say what would be done, and take over from nobody; `at` is then None.
    Raises FencedError where another retry has taken over, else BrokerError; running it again goes on where it ended.
    """

    @cache
    def partitions(topic: str) -> Collection[int]:
        with LogReader(config, topic) as reader:
            return frozenset(reader.ends)

    refusals = {letter.offset: _refusal(letter, config, partitions) for letter in found}
    wanted = [letter for letter in found if not refusals[letter.offset]]
    with ExitStack() as stack:
        producer = FencedProducer(config, "dlq", "the retry of dead letters", lambda: _fenced(wanted, config))
        if wanted and not dry_run:
            stack.enter_context(producer)
        before = retried_before(wanted, config)  # once nobody else can publish any more
        return [
            Retried(letter, refused=refusals[letter.offset])
            if refusals[letter.offset]
            else Retried(letter, before[letter.origin], before=True)
            if letter.origin in before
            else Retried(letter)
            if dry_run
            else _published(letter, producer)
            for letter in found
        ]


def retried_before(found: Sequence[Letter], config: Config) -> Mapping[LogPosition | None, LogPosition]:
    """Origin of a letter -> where its record was published again, for those that were."""
    places: dict[LogPosition | None, LogPosition] = {}
    for raw in _since_origins(found, config):
        for origin in retried_from(raw.headers):
            places.setdefault(origin, raw.position)
    return places


def retry_headers(origin: LogPosition) -> Headers:
    """What a record that is published again has beside its own headers."""
    of = f"{origin.topic}/{origin.partition}/{origin.offset}"
    return (RETRY_OF, of.encode()), (RETRY_BY, this_process().encode())


def retried_from(headers: Headers) -> Iterator[LogPosition]:
    """The origins that a record's headers name: of the letters that it was published again from."""
    for name, value in headers:
        if name == RETRY_OF:
            topic, _, rest = (value or b"").decode(errors="replace").partition("/")
            partition, _, offset = rest.partition("/")
            if all(number.isdecimal() and len(number) <= LONGEST_NUMBER for number in (partition, offset)):
                yield LogPosition(topic, int(partition), int(offset))


def _since_origins(found: Sequence[Letter], config: Config) -> Iterator[RawRecord]:
    """The records of each partition that a letter came from, from the first such place to the end."""
    firsts: dict[str, dict[int, int]] = defaultdict(dict)
    for letter in found:
        if letter.origin is not None and (name := short_name(letter, config)) is not None:
            starts = firsts[name]
            partition, offset = letter.origin.partition, letter.origin.offset
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


def _published(letter: Letter, producer: FencedProducer) -> Retried:
    """Refused where it is larger than this side lets out by now; those after it are published all the same."""
    origin = letter.origin
    assert origin is not None, "a letter without an origin was refused before"
    headers = [*letter.headers, *retry_headers(origin)]
    try:
        at = producer.write(origin.topic, letter.raw.key, letter.raw.value, headers, origin.partition)
    except RecordTooLargeError as error:
        return Retried(letter, refused=f"{error.what}; {error.hint}")
    return Retried(letter, at)


def _fenced(wanted: Sequence[Letter], config: Config) -> FencedError:
    """What the retry is told that another one has taken over from, by name where that has published anything yet."""
    try:
        said = [dict(raw.headers).get(RETRY_BY) for raw in _since_origins(wanted, config)]
        names = [_printable(who) for who in said if who is not None]
        who = next((who for who in reversed(names) if who != this_process()), "one that has published nothing yet")
    except BrokerError as unreadable:
        who = f"who it is cannot be read: {unreadable.what}"
    return FencedError(
        f"dead letters of run {config.run}",
        f"another `distrl dlq retry` has taken over ({who}); this one publishes nothing more",
        "once the other has ended, run `distrl dlq retry --all`: what was published is not published twice",
    )


def _printable(name: bytes) -> str:
    """A header may be anybody's."""
    return "".join(c if c.isprintable() else "?" for c in name.decode(errors="replace")[:NAME_CHARACTERS])


def _refusal(letter: Letter, config: Config, partitions: Callable[[str], Collection[int]]) -> str:
    """Why its record may not be published again; empty where it may."""
    if letter.cut:
        return f"{letter.cut}; have its author send the record again"
    if letter.origin is None:
        return "its headers do not say where it came from"
    name = short_name(letter, config)
    if name is None or kind_of(letter, config) is None:
        return f"it came from {letter.origin.topic}, which is no topic of tasks or trajectories of run {config.run}"
    if letter.origin.partition not in partitions(name):
        return f"{letter.origin.topic} has no partition {letter.origin.partition}"
    return ""
