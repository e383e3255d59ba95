"""The feeder role: reads what was fed, finished and learned, and feeds as many tasks as the bound on the lag allows.

One thread, no state: everything it knows is read from the topics at its start and followed from there, so a feeder
that is killed and started again goes on where the log stands. Task ids follow from the suite, so a task that was
published twice is one task.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import ExitStack
from typing import TypeVar

from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.feeder.admission import Admission
from distrl.feeder.ledger import Ledger
from distrl.tasks.lists import suite_of
from distrl.types import Heartbeat, Record, Split, Task, Trajectory, Update, Version

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)

NAME = "feeder"
HEARTBEAT_S = 2.0
ACKNOWLEDGE_WAIT_S = 0.5
"""One wait for the broker to have the tasks; in between the feeder looks whether it should stop."""
SAY_WAITING_S = 10.0
"""How often a feeder that waits for version 0 says so."""


def run_feeder(config: Config, stop: threading.Event) -> None:
    """Feed training tasks until `stop`.

    Raises ConfigError for an unknown suite or a list that is wrong, BrokerError where waiting is vain.
    """
    ledger = new_ledger(config)
    with ExitStack() as stack:
        producer = stack.enter_context(RecordProducer(config, NAME))
        topics = Topics(config, ledger, stack)
        topics.read_all()
        log.info(
            "%d tasks fed before, %d finished; suite %s",
            len(ledger.fed),
            len(ledger.finished),
            suite_of(config.feeder).name,
        )
        _loop(config, ledger, topics, producer, stop)


def new_ledger(config: Config) -> Ledger:
    """A ledger of the configured suite that has seen nothing yet."""
    suite = suite_of(config.feeder)
    suite.task(0, config.learner.seed, Split.TRAIN)  # a list without training tasks is refused now
    admission = Admission(
        config.learner.trajectories_per_update,
        config.learner.publish_every,
        config.feeder.max_lag,
        config.feeder.outstanding,
    )
    return Ledger(
        tuple(suite.families),
        lambda index: suite.task(index, config.learner.seed, Split.TRAIN),
        admission,
        config.feeder.max_retries,
        config.feeder.curriculum,
    )


class Topics:
    """The four topics that the feeder follows; whatever comes is told to the ledger."""

    def __init__(self, config: Config, ledger: Ledger, stack: ExitStack) -> None:
        def reader(topic: str) -> LogReader:
            return stack.enter_context(LogReader(config, topic))

        self._ledger = ledger
        self._tasks, self._versions = reader("tasks"), reader("versions")
        self._updates, self._trajectories = reader("updates"), reader("trajectories")

    def read_all(self) -> None:
        """Everything up to the ends captured at the start. Tasks first, so that what finished is known to be fed."""
        for reader, tell in self._each():
            for batch in reader.to_end():
                for raw in batch:
                    tell(raw)

    def follow(self, wait_s: float) -> None:
        """What came since; waits up to wait_s for a trajectory, which is what makes room."""
        for reader, tell in self._each():
            batch = reader.read(wait_s if reader is self._trajectories else 0)
            while batch:
                for raw in batch:
                    tell(raw)
                batch = reader.read(0)

    def _each(self) -> list[tuple[LogReader, Callable[[RawRecord], None]]]:
        return [
            (self._tasks, self._task),
            (self._versions, self._version),
            (self._updates, self._update),
            (self._trajectories, self._trajectory),
        ]

    def _task(self, raw: RawRecord) -> None:
        task = _readable(raw, Task)
        if task is not None:
            self._ledger.see_task(task)

    def _version(self, raw: RawRecord) -> None:
        version = _readable(raw, Version)
        if version is not None:
            self._ledger.see_version(version)

    def _update(self, raw: RawRecord) -> None:
        update = _readable(raw, Update)
        if update is not None:
            self._ledger.see_update(update, self._trajectories.topic)

    def _trajectory(self, raw: RawRecord) -> None:
        trajectory = _readable(raw, Trajectory)
        if trajectory is not None:
            self._ledger.see_trajectory(raw.position.offset, trajectory)
        elif raw.key is not None:
            self._ledger.see_unreadable(raw.key.decode(errors="replace"))


def _loop(config: Config, ledger: Ledger, topics: Topics, producer: RecordProducer, stop: threading.Event) -> None:
    ticks = time.monotonic
    next_beat = next_word = ticks()
    while not stop.is_set():
        topics.follow(config.feeder.poll_s)
        tasks = ledger.due(SYSTEM_CLOCK.now_ms())
        if tasks:
            log.debug("feeding %d tasks under version %d", len(tasks), tasks[0].fed_version)
            _feed(tasks, producer, stop)
        if ledger.version is None and ticks() >= next_word:
            next_word = ticks() + SAY_WAITING_S
            log.info("waiting for version 0: the learner publishes it after the warm-up on demonstrations")
        if ticks() >= next_beat:
            next_beat = ticks() + HEARTBEAT_S
            _beat(ledger, producer)


def _feed(tasks: list[Task], producer: RecordProducer, stop: threading.Event) -> None:
    """Publish the tasks and wait until the broker has them all: what is not acknowledged was not fed."""
    waiting = {producer.publish("tasks", task.task_id, task) for task in tasks}
    while waiting and not stop.is_set():
        done, waiting = wait(waiting, ACKNOWLEDGE_WAIT_S)
        for future in done:
            future.result()


def _beat(ledger: Ledger, producer: RecordProducer) -> None:
    version = ledger.version
    beat = Heartbeat(
        NAME, NAME, SYSTEM_CLOCK.now_ms(), version.version if version else None,
        version.adapter.sha256 if version else None,
        {"fed": len(ledger.fed), "outstanding": ledger.outstanding, "retried": ledger.retried},
    )  # fmt: skip
    try:
        producer.publish("heartbeats", NAME, beat)
    except BrokerError as error:
        log.warning("heartbeat not sent: %s", error.what)


def _readable(raw: RawRecord, expected: type[R]) -> R | None:
    try:
        return decoded(raw, expected)
    except WireError as error:
        log.error("record passed over: %s", error)
        return None
