"""The feeder's snapshots (docs/adr/0018): its facts and the view of `distrl status`, all of which follow from the log.

A snapshot is written only once the record of every fed task has been read back. Otherwise a task that never came into
the log would count as fed for ever.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from distrl.broker.connect import RefusedError, UnknownTopicError
from distrl.broker.packed_state import FORMAT, pack, unpack
from distrl.broker.producer import RecordProducer, RecordTooLargeError
from distrl.broker.reader import retained
from distrl.broker.snapshots import TOPIC, Coverage, UnusableError, most_ids, restored
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.feeder.facts import TaskFacts
from distrl.telemetry.feed import view_of
from distrl.telemetry.view import RunView
from distrl.types import LogPosition, Snapshot

log = logging.getLogger(__name__)

COVERED: Final = ("tasks", "trajectories", "versions", "updates", "evaluations")
"""All topics that a snapshot follows from, except heartbeats, of which every start reads the last ones."""

EVERY_S: Final = 30.0
EVERY_RECORDS: Final = 2_000
"""A snapshot is written after EVERY_S or EVERY_RECORDS, whichever comes first, so that a start reads the records after
it in less than a second. Writing one of 10^6 trajectories takes 10 ms."""
LEAST_S: Final = 5.0
"""Least time between two snapshots, however fast records come."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a feeder starts from. snapshot: from which facts and view were restored; None if they are empty."""

    facts: TaskFacts
    view: RunView
    snapshot: Snapshot | None = None


def known(config: Config, from_start: bool) -> Known:
    """Restores the last snapshot; empty where there is no usable one, or `from_start`.

    Raises BrokerError if the broker does not answer.
    """
    retries = config.feeder.max_retries

    def states(snapshot: Snapshot) -> tuple[TaskFacts, RunView]:
        facts = unpack(snapshot.feeder, TaskFacts, most_ids(snapshot))
        _refuse_deleted(config, snapshot, facts)
        if facts.max_retries != retries:
            raise UnusableError(f"feeder.max_retries is {retries}, and was {facts.max_retries} when it was made")
        return facts, view_of(snapshot)

    found = None if from_start else restored(config, COVERED, states)
    if found is None:
        return Known(TaskFacts(retries), RunView())
    (facts, view), snapshot = found
    return Known(facts, view, snapshot)


def _refuse_deleted(config: Config, snapshot: Snapshot, facts: TaskFacts) -> None:
    """Raises UnusableError where tasks were deleted that its facts do not know of, from partitions of which it covers
    nothing: one that was read from the start takes them into account.
    """
    covered = {each.partition for each in snapshot.covered if each.topic == "tasks"}
    gone = {p: first for p, (first, _) in retained(config, "tasks").items() if first and p not in covered}
    if sum(gone.values()) > facts.deleted:
        partition, first = next(iter(gone.items()))
        raise UnusableError(f"it covers nothing of tasks[{partition}], whose first {first} records are deleted")


class SnapshotWriter:
    """Publishes snapshots by the feeder's producer; a failure is only logged. One thread.

    now: seconds of the caller's monotonic clock.
    """

    def __init__(self, config: Config, producer: RecordProducer, processes: int) -> None:
        """processes: how many the view of the last snapshot has."""
        self._run, self._producer = config.run, producer
        self._next = self._due_at = 0.0
        self._written = (0, processes)
        self._sent: Future[LogPosition | None] | None = None
        self._enabled = True
        try:
            retained(config, TOPIC)
        except UnknownTopicError:
            self._end("the run has no topic for them; `distrl topics ensure` makes it")
        except RefusedError as error:
            self._end(error.what)

    def due(self, now: float, coverage: Coverage, view: RunView, at_end: bool = False) -> bool:
        """Whether to write a snapshot. at_end: whether it would be the last one of this process."""
        self._answered()
        if not self._enabled or self._written == (coverage.records, view.processes):
            return False
        if at_end:
            return True
        if now < self._next or self._sent is not None:
            return False
        return now >= self._due_at or coverage.records - self._written[0] >= EVERY_RECORDS

    def later(self, now: float) -> None:
        """Postpone the snapshot: `due` is True again after LEAST_S at the earliest."""
        self._next = now + LEAST_S

    def write(self, now: float, coverage: Coverage, facts: TaskFacts, view: RunView) -> None:
        at = SYSTEM_CLOCK.now_ms()
        view.forget(at)
        self._next, self._due_at = now + LEAST_S, now + EVERY_S
        self._written = (coverage.records, view.processes)
        try:
            snapshot = Snapshot(at, FORMAT, coverage.covered(), pack(facts), pack(view))
            self._sent = self._producer.publish(TOPIC, self._run, snapshot)
        except (RecordTooLargeError, RefusedError, WireError) as error:
            self._end(error.what)
        except BrokerError as error:
            log.warning("snapshot not sent: %s", error.what)

    def _answered(self) -> None:
        if self._sent is not None and self._sent.done():
            error, self._sent = self._sent.exception(), None
            if error is not None:
                self._end(str(error))

    def _end(self, why: str) -> None:
        self._enabled = False
        log.warning("no snapshots are written, so each start of a feeder or a view reads the whole log: %s", why)
