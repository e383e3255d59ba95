"""Follows six topics and the workers' offsets, and passes them on to the feeder's facts, fleet and view."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

from distrl.broker.group import GroupOffsets
from distrl.broker.journal import FROM_THE_FIRST
from distrl.broker.reader import CutError, LogReader, RawRecord, decoded
from distrl.broker.snapshots import Coverage, starts
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.feeder.fleet import SILENT_S, Fleet
from distrl.feeder.snapshots import COVERED, Known
from distrl.telemetry.feed import last_heartbeats
from distrl.types import Evaluation, Heartbeat, Outcome, Record, Task, Trajectory, Update, Version

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)

GROUP_S = 10.0
"""How often the workers' offsets are read: they matter only if trajectories are deleted, which is rare."""
READ_BACK_POLL_S = 0.05
SHOWN_IDS = 5


class Topics:
    """Follows the topics from the snapshot of `known` on. One thread."""

    def __init__(self, config: Config, known: Known, fleet: Fleet, stack: ExitStack) -> None:
        def reader(topic: str, start: Mapping[int, int] | None = None) -> LogReader:
            if start is None and known.snapshot is not None:
                start = starts(known.snapshot, topic)
            return stack.enter_context(LogReader(config, topic, start))

        self._config = config
        self._facts, self._view, self._fleet = known.facts, known.view, fleet
        self.coverage = Coverage(() if known.snapshot is None else known.snapshot.covered)
        self._forgot_learned = known.snapshot is not None
        """Whether the facts no longer have learned trajectories: a void update then requires a read from the start."""
        self._group = stack.enter_context(GroupOffsets(config))
        self._reader, self.tasks = reader, reader("tasks")
        self._offsets: Mapping[int, int] = {}
        """The workers' next offsets, as the broker last reported them."""
        # Read before the trajectories' end is captured, so that what is committed now lies before that end.
        self._committed: dict[int, int] | None = self._asked()
        self._versions = reader("versions")
        self._updates = reader("updates", FROM_THE_FIRST if known.snapshot is None else None)
        self._evaluations, self._trajectories = reader("evaluations"), reader("trajectories")
        self._heartbeats = reader("heartbeats", last_heartbeats(config))
        self._silent_before: int | None = None
        """At the start, the time (ms, by the broker's clock) of heartbeats that are too old to count for the fleet."""
        self._until: Mapping[int, int] = self._trajectories.ends
        self._unread: tuple[set[str], Mapping[int, int]] = set(), {}
        """At the last look, the tasks whose record had not been read, and the ends of their topic."""
        self._next_look = time.monotonic() + GROUP_S
        self.last_trajectory = time.monotonic()
        """When the last trajectory that was not interrupted was read."""
        covered = {each.partition for each in self.coverage.covered() if each.topic == "tasks"}
        self._first = {partition: first for partition, (first, _) in self.tasks.kept().items()}
        gone = sum(first for partition, first in self._first.items() if partition not in covered)
        self._facts.deleted = max(self._facts.deleted, gone)  # a snapshot knows of some of them

    @property
    def partitions(self) -> int:
        return len(self.tasks.next_offsets)

    @property
    def consumer_lag(self) -> int:
        """Records of `tasks` that were read here and not committed by the workers when their offsets were last read."""
        return sum(
            max(0, end - self._offsets.get(partition, self._first.get(partition, 0)))
            for partition, end in self.tasks.next_offsets.items()
        )

    def read_all(self, progress: Callable[[], object] = lambda: None) -> None:
        """Read everything up to the ends captured at the start. Tasks come first, so that finished ones count as fed.

        progress: called after each batch.
        """
        for topic, reader in self._each():
            for batch in reader.to_end() if topic != "heartbeats" else [self._heartbeats_so_far()]:
                self._take(topic, batch)
                progress()
        self._silent_before = None
        self._end_finished()
        self._forgot_learned = True

    def _heartbeats_so_far(self) -> list[RawRecord]:
        """The heartbeats so far. Sets `_silent_before`: old heartbeats, though read only now, say nothing of the
        present fleet."""
        found = [raw for batch in self._heartbeats.to_end() for raw in batch]
        self._silent_before = max((raw.timestamp for raw in found), default=0) - int(SILENT_S * 1000)
        return found

    def follow(self, wait_s: float) -> None:
        """Read new records. Waits up to `wait_s` for a trajectory, as each allows feeding more tasks."""
        for topic, reader in self._each():
            batch = reader.read(wait_s if reader is self._trajectories else 0)
            while batch:
                self._take(topic, batch)
                batch = reader.read(0)
        self._look()

    def read_back(self, longest_s: float) -> bool:
        """Read on until the record of every outstanding task was read; False if some have not come by then."""
        deadline = time.monotonic() + longest_s
        while not self._facts.read_back and time.monotonic() < deadline:
            self._take("tasks", self.tasks.read(READ_BACK_POLL_S))
        return self._facts.read_back

    def _look(self) -> None:
        """Reads the workers' offsets and the deleted ranges every GROUP_S. See facts.py for why this ends tasks."""
        try:
            if self._committed is not None and self._trajectories.reached(self._until):
                self._end_finished()
            if time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + GROUP_S
                self._refuse_lost()
                self._ask()
        except CutError:
            raise
        except BrokerError as error:
            log.warning("cannot tell which tasks have ended: %s", error.what)  # the readers raise permanent errors

    def _refuse_lost(self) -> None:
        """Raises CutError where the log does not have a task that the broker had acknowledged before the last look.

        A broker that loses its last record before it is fetched cuts nothing for this reader, which stands at the new
        end. That task would stay outstanding for ever.
        """
        unread, ends = self._unread
        lost = unread & self._facts.outstanding.unread_ids()
        if lost and self.tasks.reached(ends):
            raise CutError(self.tasks.topic, f"it no longer has {_some(sorted(lost))}, which it had taken", "wait")
        known = self.tasks.next_offsets
        ends = {p: end for p, (_, end) in self.tasks.kept().items() if p in known}
        self._unread = self._facts.outstanding.unread_ids(), ends

    def _ask(self) -> None:
        if len(self.tasks.kept()) > self.partitions:  # partitions were added
            before, self.tasks = self.tasks, self._reader("tasks", self.tasks.next_offsets)
            before.close()  # otherwise it would continue to fetch records
        committed = self._asked()
        self._until = {p: end for p, (_, end) in self._trajectories.kept().items()}
        self._committed = committed  # set last: with an end captured before these offsets they would prove nothing

    def _end_finished(self) -> None:
        ended = self._facts.see_committed(self._committed or {})
        self._committed = None
        if ended:
            log.warning("%d tasks are done, but their trajectories are deleted: %s", len(ended), _some(ended))
        deleted = self._facts.see_deleted({p: first for p, (first, _) in self.tasks.kept().items()})
        if deleted:
            log.warning("%d tasks were deleted before they were done: %s", len(deleted), _some(deleted))

    def _asked(self) -> dict[int, int]:
        """The workers' offsets; none if the broker does not answer."""
        try:
            self._offsets = self._group.committed(sorted(self.tasks.next_offsets))
            return dict(self._offsets)
        except BrokerError as error:
            log.warning("cannot read the workers' offsets: %s", error.what)
            return {}

    def _each(self) -> Iterator[tuple[str, LogReader]]:
        yield "tasks", self.tasks
        yield "versions", self._versions
        yield "updates", self._updates
        yield "heartbeats", self._heartbeats
        yield "evaluations", self._evaluations
        yield "trajectories", self._trajectories

    def _take(self, topic: str, batch: Sequence[RawRecord]) -> None:
        handle = self._handlers[topic]
        for raw in batch:
            if topic in COVERED:
                self.coverage.see(topic, raw)
            handle(self, raw)

    def _task(self, raw: RawRecord) -> None:
        task = _readable(raw, Task)
        if task is not None:
            self._facts.see_task(task, raw.position)

    def _version(self, raw: RawRecord) -> None:
        version = _readable(raw, Version)
        if version is not None:
            self._facts.see_version(version)
            self._view.feed(version, raw.timestamp)

    def _update(self, raw: RawRecord) -> None:
        update = _readable(raw, Update)
        if update is not None and update.void and self._forgot_learned:
            raise CutError(self._updates.topic, f"updates from {update.u} on are void ({update.void})", "wait")
        if update is not None:
            self._facts.see_update(update, self._trajectories.topic)

    def _heartbeat(self, raw: RawRecord) -> None:
        beat = _readable(raw, Heartbeat)
        if beat is not None:
            if self._silent_before is None or raw.timestamp >= self._silent_before:
                self._fleet.see(beat, time.monotonic())
            self._view.feed(beat, raw.timestamp)

    def _evaluation(self, raw: RawRecord) -> None:
        evaluation = _readable(raw, Evaluation)
        if evaluation is not None:
            self._view.feed(evaluation, raw.timestamp)

    def _trajectory(self, raw: RawRecord) -> None:
        trajectory = _readable(raw, Trajectory)
        if trajectory is not None:
            if trajectory.outcome is not Outcome.INTERRUPTED:
                self.last_trajectory = time.monotonic()
            self._facts.see_trajectory(raw.position.offset, trajectory, raw.value)
            self._view.feed(trajectory, raw.timestamp)
        elif raw.key is not None:
            self._facts.see_unreadable(raw.key.decode(errors="replace"))

    _handlers: Mapping[str, Callable[[Topics, RawRecord], None]] = {
        "tasks": _task,
        "versions": _version,
        "updates": _update,
        "heartbeats": _heartbeat,
        "evaluations": _evaluation,
        "trajectories": _trajectory,
    }


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:SHOWN_IDS]) + (", …" if len(ids) > SHOWN_IDS else "")


def _readable(raw: RawRecord, expected: type[R]) -> R | None:
    try:
        return decoded(raw, expected)
    except WireError as error:
        log.error("record skipped: %s", error)
        return None
