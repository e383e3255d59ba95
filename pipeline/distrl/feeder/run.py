"""The feeder role: reads what was fed, finished and learned, and feeds as many tasks as the lag bound allows.

One thread. It has no state of its own: at its start it reads the topics, from its last snapshot on, and then follows
them, so a restarted feeder continues where the log ends. Task ids follow from the suite, so a task that was published
twice is one task. Opening the publisher fences every earlier feeder of the run, before the topics are read.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial

from tenacity import wait_fixed

from distrl.broker import claims
from distrl.broker.heartbeats import HeartbeatSender
from distrl.broker.producer import RecordProducer, RecordTooLargeError, refuse_too_large
from distrl.broker.reader import CutError
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import WireError
from distrl.feeder.admission import Admission
from distrl.feeder.due_update import DueUpdate
from distrl.feeder.facts import TaskFacts
from distrl.feeder.fleet import Fleet
from distrl.feeder.publish import ROLE, TaskPublisher
from distrl.feeder.snapshots import Known, SnapshotWriter, known
from distrl.feeder.spread import spread
from distrl.feeder.state import FeederState
from distrl.feeder.topics import Topics
from distrl.retry import StoppedError, retry
from distrl.tasks.lists import ListSuite, suite_of
from distrl.telemetry.monitor import Monitor, Reporter
from distrl.telemetry.stalls import STALLED_HINT, STALLED_S, stalled
from distrl.telemetry.tracing import OFF, Tracer
from distrl.text import printable
from distrl.types import Split, Task
from distrl.wire.codec import encode

log = logging.getLogger(__name__)

HEARTBEAT_S = 2.0
AGAIN_S = 1.0
"""Pause before all topics are read again, since a broker that has just lost records may still be recovering."""
WAITING_LOG_S = 60.0
"""How often it is logged that the feeder waits for version 0."""
SHOWN_CHARACTERS = 100
GROWTH_BYTES = 64
"""By how much a task may grow as it is fed: by the time and the version at which that is."""
READ_BACK_S = 1.0
"""Longest wait, before a snapshot, until the last fed tasks are read back; this usually takes milliseconds."""


def run_feeder(config: Config, stop: threading.Event, monitor: Monitor | None = None, tracer: Tracer = OFF) -> None:
    """Feed training tasks until `stop`.

    Raises ConfigError for an unknown suite or an invalid list, ReplacedError if another feeder has taken over,
    BrokerError if retrying does not help.
    """
    new_state(config)  # refuse an invalid suite before another feeder is fenced
    from_start, monitor = False, monitor or Monitor()

    def lost(error: CutError, wait_s: float) -> None:
        nonlocal from_start
        from_start = True  # the snapshot may include records that are lost
        log.warning("reading every topic again from its start: %s", error.what)

    with TaskPublisher(config, tracer) as publisher:  # only once: opening it again would fence a feeder that took over
        if not stop.is_set():
            with suppress(StoppedError):
                retry(
                    lambda: _feed_until(config, publisher, stop, from_start, monitor),
                    stop,
                    CutError,
                    wait_fixed(AGAIN_S),
                    lost,
                )


def _feed_until(
    config: Config, publisher: TaskPublisher, stop: threading.Event, from_start: bool, monitor: Monitor
) -> None:
    """Read all topics and feed until `stop`. Raises CutError if records that were read are lost."""
    monitor.waits_for("the end of the log, which it reads")
    found = known(config, from_start)
    state = new_state(config, found.facts)
    with ExitStack() as stack:
        producer = stack.enter_context(RecordProducer(config, ROLE))
        feeder = Feeder(config, state, found, producer, publisher, stack, monitor)
        feeder.begin(stop)
        monitor.ready()
        feeder.work(stop)


def new_state(config: Config, facts: TaskFacts | None = None) -> FeederState:
    """The state for the configured suite; facts: None if nothing is known yet."""
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
        facts or TaskFacts(config.feeder.max_retries),
        config.feeder.curriculum,
        config.episodes_per_task,
        suite.round_length if isinstance(suite, ListSuite) else 0,
        partial(_fits, config.kafka.max_record_bytes - GROWTH_BYTES),
    )


def _fits(most: int, task: Task) -> bool:
    """Whether the record of a task that is fed again has at most so many bytes. If not, it warns."""
    try:
        refuse_too_large("tasks", task.task_id.encode(), encode(task), most)
    except (RecordTooLargeError, WireError) as error:
        log.warning("%s is not fed again: %s", printable(task.task_id[:SHOWN_CHARACTERS]), error.what)
        return False
    return True


class Feeder:
    """The feeder's loop. One thread."""

    def __init__(
        self,
        config: Config,
        state: FeederState,
        found: Known,
        producer: RecordProducer,
        publisher: TaskPublisher,
        stack: ExitStack,
        monitor: Monitor,
    ) -> None:
        self._config, self._state, self._publisher = config, state, publisher
        self._facts, self._view = state.facts, found.view
        send = partial(claims.send, producer, config, mine=publisher.claim)
        self._reporter = Reporter(HeartbeatSender(ROLE, ROLE, HEARTBEAT_S, send), monitor)
        self._fleet = Fleet()
        self._most = config.feeder.outstanding_for(0)
        self._moving_since = self._next_log = time.monotonic()
        self._due_update = DueUpdate(config.learner.trajectories_per_update, self._moving_since)
        # Without metrics: those of the snapshot are behind what a killed feeder has reported, and counters never fall.
        self._reporter.report(self._facts.version, {})
        self._snapshots = SnapshotWriter(config, producer, found.view.processes)
        self._topics = Topics(config, found, self._fleet, stack)

    def begin(self, stop: threading.Event) -> None:
        """Read every topic to its end. Raises StoppedError where `stop` is set before that: to read a long log without
        a snapshot takes longer than a process is given to end."""

        def progress() -> None:
            if stop.is_set():
                raise StoppedError
            self._reporter.monitor.progress()

        self._topics.read_all(progress)
        self._state.find_next()
        self._moving_since = self._next_log = time.monotonic()
        log.info(
            "%d tasks fed before, %d finished; suite %s",
            len(self._facts.fed),
            len(self._facts.finished),
            suite_of(self._config.feeder).name,
        )

    def work(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._reporter.monitor.progress()
            self._topics.follow(self._config.feeder.poll_s)
            self._take_snapshot()
            self._pace()
            tasks = self._state.due(SYSTEM_CLOCK.now_ms())
            if tasks:
                self._feed(tasks, stop)
            self._log_waiting()
            if self._reporter.due:
                self._report()
        self._take_snapshot(at_end=True)

    def _take_snapshot(self, at_end: bool = False) -> None:
        now = time.monotonic()
        if not self._snapshots.due(now, self._topics.coverage, self._view, at_end):
            return
        if self._topics.read_back(READ_BACK_S):
            self._snapshots.write(now, self._topics.coverage, self._facts, self._view)
        else:
            self._snapshots.later(now)

    def _pace(self) -> None:
        most = self._config.feeder.outstanding_for(self._fleet.phones(time.monotonic()))
        if most != self._most:
            log.info("at most %d tasks are outstanding from now on, by the number of phones that answer", most)
            self._most = most
        self._state.admission = replace(self._state.admission, outstanding=most)

    def _feed(self, tasks: list[Task], stop: threading.Event) -> None:
        """Publish the tasks and wait until all are acknowledged: others do not count as fed."""
        log.debug("feeding %d tasks under version %d", len(tasks), tasks[0].fed_version)
        owners = self._fleet.owners(self._topics.partitions, time.monotonic())
        chosen = spread(self._facts.outstanding.loads, owners, len(tasks))
        for task, partition in zip(tasks, chosen, strict=True):
            self._facts.see_sent(task.task_id, partition)
        before = self._topics.tasks.next_offsets
        self._publisher.feed(zip(tasks, chosen, strict=True), before, stop, self._waiting)

    def _waiting(self) -> None:
        """Called while tasks cannot be written: reports metrics, from which alerts see how long nothing has come."""
        self._reporter.monitor.progress()
        if self._reporter.due:
            self._report()

    def _log_waiting(self) -> None:
        """Logs, rate-limited, that there is no version yet, or that nothing progresses."""
        now, quiet_s = time.monotonic(), self._quiet_s()
        if now < self._next_log:
            return
        if self._facts.version is None:
            self._next_log = now + WAITING_LOG_S
            log.info("waiting for version 0: the learner publishes it after the warm-up on demonstrations")
            return
        words = stalled(quiet_s, self._facts.outstanding.loads, self._fleet.beats(now))
        if words is not None:
            self._next_log = now + STALLED_S
            log.warning("%s; %s", words, STALLED_HINT)

    def _quiet_s(self) -> float:
        """Seconds since the last uninterrupted trajectory came, or, if less, since any task has been outstanding."""
        now = time.monotonic()
        if not self._facts.outstanding:
            self._moving_since = now
        return now - max(self._moving_since, self._topics.last_trajectory)

    def _report(self) -> None:
        metrics = {
            "fed": len(self._facts.fed),
            "outstanding": len(self._facts.outstanding),
            "outstanding_limit": self._most,
            "retried": self._facts.retried,
            "max_lag": self._config.feeder.max_lag,
            "quiet_seconds": self._quiet_s(),
            "unlearned_seconds": self._due_update.waits_s(
                len(self._facts.unlearned), self._facts.update, time.monotonic()
            ),
            "consumer_lag": self._topics.consumer_lag,
        }
        self._reporter.report(self._facts.version, metrics)
