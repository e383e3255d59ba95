"""The feeder role: reads what was fed, finished and learned, and feeds as many tasks as the lag bound allows.

One thread, no stored state: it reads the topics at its start and follows them, so a restarted feeder continues where
the log ends. Task ids follow from the suite, so a task that was published twice is one task. Opening the publisher
fences every earlier feeder of the run, before the topics are read.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from tenacity import wait_fixed

from distrl.broker import ownership
from distrl.broker.group import GroupOffsets
from distrl.broker.heartbeats import HeartbeatSender
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import CutError, LogReader, RawRecord, decoded
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.feeder.admission import Admission
from distrl.feeder.fleet import Fleet
from distrl.feeder.publish import ROLE, TaskPublisher
from distrl.feeder.state import FeederState, least_loaded
from distrl.retry import StoppedError, retry
from distrl.tasks.lists import suite_of
from distrl.telemetry.stalls import STALLED_HINT, STALLED_S, stalled
from distrl.types import Heartbeat, Record, Split, Task, Trajectory, Update, Version

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)

HEARTBEAT_S = 2.0
AGAIN_S = 1.0
"""Pause before all topics are read again, since a broker that has just lost records may still be recovering."""
WAITING_LOG_S = 60.0
"""How often it is logged that the feeder waits for version 0."""
GROUP_S = 10.0
"""How often the workers' offsets are read: they matter only if trajectories are deleted, which is rare."""
HEARTBEATS_READ = 1000
"""Heartbeats read at the start: the last seconds of some hundred workers."""
SHOWN_IDS = 5


def run_feeder(config: Config, stop: threading.Event) -> None:
    """Feed training tasks until `stop`.

    Raises ConfigError for an unknown suite or an invalid list, ReplacedError if another feeder has taken over,
    BrokerError if retrying does not help.
    """
    new_state(config)  # refuse an invalid suite before another feeder is fenced
    with TaskPublisher(config) as publisher:  # once: it claims the role, which another feeder may have claimed since
        if not stop.is_set():
            with suppress(StoppedError):
                retry(lambda: _feed_until(config, publisher, stop), stop, CutError, wait_fixed(AGAIN_S), _lost)


def _lost(error: CutError, wait_s: float) -> None:
    log.warning("reading every topic again from its start: %s", error.what)


def _feed_until(config: Config, publisher: TaskPublisher, stop: threading.Event) -> None:
    """Read all topics and feed until `stop`. Raises CutError if records that were read are lost."""
    state = new_state(config)
    with ExitStack() as stack:
        producer = stack.enter_context(RecordProducer(config, ROLE))
        feeder = Feeder(config, state, producer, publisher, stack)
        feeder.begin()
        feeder.work(stop)


def new_state(config: Config) -> FeederState:
    """The initial state for the configured suite."""
    suite = suite_of(config.feeder)
    suite.task(0, config.learner.seed, Split.TRAIN)  # refuses a list without training tasks
    admission = Admission(
        config.learner.trajectories_per_update,
        config.learner.publish_every,
        config.feeder.max_lag,
        config.feeder.outstanding_for(0),
    )
    return FeederState(
        tuple(suite.families),
        lambda index: suite.task(index, config.learner.seed, Split.TRAIN),
        admission,
        config.feeder.max_retries,
        config.feeder.curriculum,
    )


class Topics:
    """Follows five topics and the workers' offsets, and passes the records on to the state and the fleet."""

    def __init__(self, config: Config, state: FeederState, fleet: Fleet, stack: ExitStack) -> None:
        def reader(topic: str, start: Mapping[int, int] | None = None) -> LogReader:
            return stack.enter_context(LogReader(config, topic, start))

        self._config = config
        self._state, self._fleet = state, fleet
        self._following = False
        self._group = stack.enter_context(GroupOffsets(config))
        self._reader, self.tasks = reader, reader("tasks")
        # Read before the trajectories' end is captured, so that what is committed now lies before that end.
        self._committed: dict[int, int] | None = self._asked()
        self._versions = reader("versions")
        self._updates, self._trajectories = reader("updates"), reader("trajectories")
        with LogReader(config, "heartbeats") as whole:
            last = {p: max(first, end - HEARTBEATS_READ) for p, (first, end) in whole.kept().items()}
        self._heartbeats = reader("heartbeats", last)
        self._until: Mapping[int, int] = self._trajectories.ends
        self._next_look = time.monotonic() + GROUP_S
        self.last_trajectory = time.monotonic()
        self._state.deleted = sum(first for first, _ in self.tasks.kept().values())

    @property
    def partitions(self) -> int:
        return len(self.tasks.next_offsets)

    def read_all(self) -> None:
        """Everything up to the ends captured at the start. Tasks first, so that finished ones are known as fed."""
        for reader, handle in self._each():
            for batch in reader.to_end():
                for raw in batch:
                    handle(raw)
        self._end_finished()
        self._following = True

    def follow(self, wait_s: float) -> None:
        """New records; waits up to wait_s for a trajectory, which makes room for tasks."""
        for reader, handle in self._each():
            batch = reader.read(wait_s if reader is self._trajectories else 0)
            while batch:
                for raw in batch:
                    handle(raw)
                batch = reader.read(0)
        self._look()

    def _look(self) -> None:
        """Reads the workers' offsets and the deleted ranges every GROUP_S. See state.py for why this ends tasks."""
        try:
            if self._committed is not None and self._trajectories.reached(self._until):
                self._end_finished()
            if time.monotonic() >= self._next_look:
                self._next_look = time.monotonic() + GROUP_S
                self._ask()
        except BrokerError as error:
            log.warning("cannot tell which tasks have ended: %s", error.what)  # a permanent error, the readers raise

    def _ask(self) -> None:
        if len(self.tasks.kept()) > self.partitions:  # partitions were added
            self.tasks = self._reader("tasks", self.tasks.next_offsets)
        committed = self._asked()
        self._until = {p: end for p, (_, end) in self._trajectories.kept().items()}
        self._committed = committed  # set last: an end captured before it would prove nothing

    def _end_finished(self) -> None:
        ended = self._state.see_committed(self._committed or {})
        self._committed = None
        if ended:
            log.warning("%d tasks are done, but their trajectories are deleted: %s", len(ended), _some(ended))
        deleted = self._state.see_deleted({p: first for p, (first, _) in self.tasks.kept().items()})
        if deleted:
            log.warning("%d tasks were deleted before they were done: %s", len(deleted), _some(deleted))

    def _asked(self) -> dict[int, int]:
        """The workers' offsets; none if the broker does not answer."""
        try:
            return self._group.committed(sorted(self.tasks.next_offsets))
        except BrokerError as error:
            log.warning("cannot read the workers' offsets: %s", error.what)
            return {}

    def _each(self) -> list[tuple[LogReader, Callable[[RawRecord], None]]]:
        return [
            (self.tasks, self._task),
            (self._versions, self._version),
            (self._updates, self._update),
            (self._heartbeats, self._heartbeat),
            (self._trajectories, self._trajectory),
        ]

    def _task(self, raw: RawRecord) -> None:
        task = _readable(raw, Task)
        if task is not None:
            self._state.see_task(task, raw.position)

    def _version(self, raw: RawRecord) -> None:
        version = _readable(raw, Version)
        if version is not None:
            self._state.see_version(version)

    def _update(self, raw: RawRecord) -> None:
        update = _readable(raw, Update)
        if update is not None and update.void and self._following:
            raise CutError(self._updates.topic, f"updates from {update.u} on are void ({update.void})", "wait")
        if update is not None:
            self._state.see_update(update, self._trajectories.topic)

    def _heartbeat(self, raw: RawRecord) -> None:
        beat = _readable(raw, Heartbeat)
        if beat is not None:
            self._fleet.see(beat, time.monotonic())

    def _trajectory(self, raw: RawRecord) -> None:
        self.last_trajectory = time.monotonic()
        trajectory = _readable(raw, Trajectory)
        if trajectory is not None:
            self._state.see_trajectory(raw.position.offset, trajectory)
        elif raw.key is not None:
            self._state.see_unreadable(raw.key.decode(errors="replace"))


class Feeder:
    """The feeder's loop. One thread."""

    def __init__(
        self, config: Config, state: FeederState, producer: RecordProducer, publisher: TaskPublisher, stack: ExitStack
    ) -> None:
        self._config, self._state, self._publisher = config, state, publisher
        send = partial(ownership.send, producer, config, more=[publisher.claim.header])
        self._heartbeats = HeartbeatSender(ROLE, ROLE, HEARTBEAT_S, send)
        self._fleet = Fleet()
        self._most = config.feeder.outstanding_for(0)
        self._beat()
        self._topics = Topics(config, state, self._fleet, stack)
        self._moving_since = time.monotonic()
        self._next_log = time.monotonic()

    def begin(self) -> None:
        self._topics.read_all()
        self._moving_since = self._next_log = time.monotonic()
        log.info(
            "%d tasks fed before, %d finished; suite %s",
            len(self._state.fed),
            len(self._state.finished),
            suite_of(self._config.feeder).name,
        )

    def work(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._topics.follow(self._config.feeder.poll_s)
            self._pace()
            tasks = self._state.due(SYSTEM_CLOCK.now_ms())
            if tasks:
                self._feed(tasks, stop)
            self._log_waiting()
            if self._heartbeats.due:
                self._beat()

    def _pace(self) -> None:
        most = self._config.feeder.outstanding_for(self._fleet.phones(time.monotonic()))
        if most != self._most:
            log.info("at most %d tasks are outstanding from now on, by the number of phones that answer", most)
            self._most = most
        self._state.admission = replace(self._state.admission, outstanding=most)

    def _feed(self, tasks: list[Task], stop: threading.Event) -> None:
        """Publish the tasks and wait until all are acknowledged: others do not count as fed."""
        log.debug("feeding %d tasks under version %d", len(tasks), tasks[0].fed_version)
        chosen = least_loaded(self._state.loads(), self._topics.partitions, len(tasks))
        for task, partition in zip(tasks, chosen, strict=True):
            self._state.see_sent(task.task_id, partition)
        before = self._topics.tasks.next_offsets
        self._publisher.feed(zip(tasks, chosen, strict=True), before, stop)

    def _log_waiting(self) -> None:
        """Logs, rate-limited, that there is no version yet, or that nothing progresses."""
        now = time.monotonic()
        if not self._state.outstanding:
            self._moving_since = now
        if now < self._next_log:
            return
        if self._state.version is None:
            self._next_log = now + WAITING_LOG_S
            log.info("waiting for version 0: the learner publishes it after the warm-up on demonstrations")
            return
        quiet_s = now - max(self._moving_since, self._topics.last_trajectory)
        words = stalled(quiet_s, self._state.loads(), self._fleet.beats(now))
        if words is not None:
            self._next_log = now + STALLED_S
            log.warning("%s; %s", words, STALLED_HINT)

    def _beat(self) -> None:
        metrics = {
            "fed": len(self._state.fed),
            "outstanding": self._state.outstanding,
            "outstanding_limit": self._most,
            "retried": self._state.retried,
        }
        self._heartbeats.send(self._state.version, metrics)


def _some(ids: Sequence[str]) -> str:
    return ", ".join(ids[:SHOWN_IDS]) + (", …" if len(ids) > SHOWN_IDS else "")


def _readable(raw: RawRecord, expected: type[R]) -> R | None:
    try:
        return decoded(raw, expected)
    except WireError as error:
        log.error("record skipped: %s", error)
        return None
