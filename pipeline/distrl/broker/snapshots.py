"""Snapshots of states that are folded from a run's log: a start reads the newest one, and then only what came after it.

A snapshot is used only if the log still has, in each partition that it covers, the very record that it covers last
there: a log that was truncated, made again or mirrored has another one in that place, or none. Whatever is wrong with
it, the log is read from its start.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from distrl.broker.connect import RefusedError, UnknownTopicError
from distrl.broker.packed_state import FORMAT
from distrl.broker.reader import LogReader, RawRecord, decoded, retained
from distrl.config import Config
from distrl.errors import WireError
from distrl.types import Covered, Snapshot

log = logging.getLogger(__name__)

S = TypeVar("S")
TOPIC: Final = "snapshots"

Position = tuple[str, int]
"""A topic without its run, and a partition."""


class UnusableError(Exception):
    """Why a snapshot is not used; for people."""


class Coverage:
    """The last record of each partition that was read, from a snapshot's on. Pure; one thread."""

    def __init__(self, begin: Iterable[Covered] = ()) -> None:
        self._begin = {(each.topic, each.partition): each for each in begin}
        self._last: dict[Position, RawRecord] = {}
        self.records = 0
        """Read since `begin`."""

    def see(self, topic: str, raw: RawRecord) -> None:
        self._last[topic, raw.position.partition] = raw
        self.records += 1

    def covered(self) -> tuple[Covered, ...]:
        read = {at: Covered(*at, raw.position.offset, digest(raw)) for at, raw in self._last.items()}
        return tuple(each for _, each in sorted((self._begin | read).items()))


def restored(config: Config, topics: Collection[str], unpack: Callable[[Snapshot], S]) -> tuple[S, Snapshot] | None:
    """The state in the run's last snapshot, where the log still begins with what that covers of `topics`.

    None where there is no such snapshot; the log says why. unpack: raises WireError or UnusableError.
    Raises BrokerError if the broker does not answer.
    """
    try:
        snapshot = _last(config)
        if snapshot is None:
            return None
        state = unpack(snapshot)
        for topic in topics:
            _check(config, topic, [each for each in snapshot.covered if each.topic == topic])
    except (UnusableError, WireError) as error:
        log.warning("the last snapshot is not used, so the log is read from its start: %s", error)
        return None
    return state, snapshot


def starts(snapshot: Snapshot, topic: str) -> Mapping[int, int]:
    """Partition -> the first offset that is not covered."""
    return {each.partition: each.last + 1 for each in snapshot.covered if each.topic == topic}


def most_ids(snapshot: Snapshot) -> int:
    """Upper bound of the ids in a state that covers these records: each record has one."""
    return sum(each.last + 1 for each in snapshot.covered)


def digest(raw: RawRecord) -> str:
    """sha256 (hex) of key and value, each with its length before it (-1: none)."""
    found = hashlib.sha256()
    for part in (raw.key, raw.value):
        found.update(b"%d:" % (-1 if part is None else len(part)))
        found.update(part or b"")
    return found.hexdigest()


def _last(config: Config) -> Snapshot | None:
    """The newest record of the topic; None if there is no topic, as in a run that began before there was one."""
    try:
        kept = retained(config, TOPIC)
        first, end = kept[0]
        if first == end:
            return None
        with LogReader(config, TOPIC, {0: end - 1}) as reader:
            raws = [raw for batch in reader.to_end() for raw in batch]
    except UnknownTopicError:
        return None
    except RefusedError as error:
        raise UnusableError(error) from None
    if not raws:
        raise UnusableError(f"record {end - 1} of {TOPIC} is gone")
    snapshot = decoded(raws[-1], Snapshot)
    if snapshot.format != FORMAT:
        raise UnusableError(f"its states have format {snapshot.format}, and this version of distrl reads {FORMAT}")
    if len({(each.topic, each.partition) for each in snapshot.covered}) < len(snapshot.covered):
        raise UnusableError("it covers a partition twice")
    return snapshot


def _check(config: Config, topic: str, covered: Collection[Covered]) -> None:
    """Raises UnusableError unless each of these marks is where it was."""
    if not covered:
        return
    kept = retained(config, topic)
    for each in covered:
        first, end = kept.get(each.partition, (0, 0))
        if not first <= each.last < end:
            what = f"record {each.last} of {topic}[{each.partition}], which has the records from {first} to {end}"
            raise UnusableError(f"it covers {what}")
    left = {each.partition: each for each in covered}
    start = {partition: end for partition, (_, end) in kept.items()}
    with LogReader(config, topic, start | {each.partition: each.last for each in covered}) as reader:
        for batch in reader.to_end():
            for raw in batch:
                mark = left.pop(raw.position.partition, None)
                if mark is not None and (raw.position.offset, digest(raw)) != (mark.last, mark.sha256):
                    raise UnusableError(f"{topic}[{mark.partition}] has another record {mark.last} than it read there")
            if not left:
                return
    if left:
        lost = ", ".join(f"{topic}[{each.partition}] {each.last}" for each in left.values())
        raise UnusableError(f"records that it covers are gone: {lost}")
