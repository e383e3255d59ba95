"""Actors: threads that each lease a phone and play one task after another on it.

`start` starts the threads. After `stop` no further task is taken and each actor finishes its episode; the owner of the
actor pool sets `give_up` once it no longer waits for them. After an interrupted episode the actor returns the phone to
the phone pool, which recovers it, and leases the next healthy one.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

from distrl.broker.connect import BeyondUseError
from distrl.broker.producer import RecordTooLargeError
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.errors import BrokerError, DistrlError, WireError
from distrl.rollout.back_pressure import AbandonedError, Retry
from distrl.rollout.decider import PolicyEndedError
from distrl.rollout.episode import NO_JUDGE, NOTE_CHARACTERS, Phone
from distrl.rollout.task_queue import Received, TaskQueue
from distrl.supervised import SupervisedThreads
from distrl.telemetry.logs import about
from distrl.telemetry.tracing import trace_id
from distrl.text import encodable
from distrl.types import LogPosition, Outcome, Task, Trajectory

log = logging.getLogger(__name__)

LEASE_WAIT_S = 0.5
"""Longest wait of one lease attempt; between two attempts an actor checks whether the pool stops."""


class Lease(Protocol):
    """Waits up to `timeout_s` for a healthy phone; the block gets None where there is none by then."""

    def __call__(self, timeout_s: float) -> AbstractContextManager[Phone | None]: ...


class PhonePool(Protocol):
    """The phones of an actor pool."""

    @property
    def count(self) -> int:
        """How many there are, healthy or not."""

    @property
    def lease(self) -> Lease: ...


Play = Callable[[Task, Phone], Trajectory]
Deliver = Callable[[Received, Trajectory], None]


class ActorPool:
    """deliver: called in the actor's thread; returns once the trajectory is safe. Only then the actor takes a task."""

    def __init__(
        self,
        lease: Lease,
        play: Play,
        deliver: Deliver,
        task_queue: TaskQueue,
        give_up: threading.Event,
        worker: str,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._lease = lease
        self._play = play
        self._deliver = deliver
        self._task_queue = task_queue
        self._give_up = give_up
        self._worker = worker
        self._clock = clock
        self._threads = SupervisedThreads()

    @property
    def running(self) -> bool:
        return self._threads.running

    def start(self, actors: int) -> None:
        for number in range(actors):
            self._threads.start(self._actor, f"actor-{number}")

    def stop(self) -> None:
        """Let the actors take no further task; each ends after its episode."""
        self._task_queue.close()

    def check(self) -> None:
        """Raises what ended an actor unexpectedly: otherwise its phone would stay idle unnoticed."""
        self._threads.check()

    def join(self, timeout_s: float) -> bool:
        """Waits up to timeout_s. Returns whether every actor has ended."""
        return self._threads.join(timeout_s)

    def _actor(self) -> None:
        try:
            while not self._task_queue.closed and not self._give_up.is_set():
                with self._lease(LEASE_WAIT_S) as phone:
                    if phone is not None:
                        self._while_healthy(phone)
        except AbandonedError as error:
            log.warning("an episode is abandoned: %s", error.what)

    def _while_healthy(self, phone: Phone) -> None:
        while (received := self._task_queue.take()) is not None:
            with about(task=received.task.task_id, device=phone.serial, **_trace(received)):
                trajectory = self._played(received.task, phone)
                self._deliver(received, trajectory)
            if trajectory.outcome is Outcome.INTERRUPTED:
                return

    def _played(self, task: Task, phone: Phone) -> Trajectory:
        """Play the task. An unexpected error gives an interrupted trajectory and does not end the actor."""
        started = self._clock.now_ms()
        try:
            return self._play(task, phone)
        except (AbandonedError, PolicyEndedError):
            raise
        except Exception as error:
            if self._give_up.is_set():
                raise AbandonedError(task.task_id, "the policy has stopped", "its task is delivered again") from error
            log.exception("%s: the episode on %s ended in an unexpected error", task.task_id, phone.serial)
            what = error.what if isinstance(error, DistrlError) else str(error)
            return Trajectory(
                task,
                new_attempt_id(),
                self._worker,
                phone.serial,
                (),
                None,
                Outcome.INTERRUPTED,
                NO_JUDGE,
                f"{type(error).__name__}: {what}"[:NOTE_CHARACTERS],
                False,
                started,
                self._clock.now_ms(),
            )


def _trace(received: Received) -> dict[str, str]:
    """The trace id of the task, for log lines; empty where it has none."""
    found = trace_id(received.headers)
    return {} if found is None else {"trace": found}


def new_attempt_id() -> str:
    return uuid.uuid4().hex


def play_all(
    tasks: Sequence[Task],
    fleet: PhonePool,
    play: Play,
    keep: Callable[[Trajectory], None],
    *,
    worker: str,
    retries: int,
    drain_s: float,
    stop: threading.Event,
    give_up: threading.Event,
    turn: Callable[[], object] = lambda: None,
) -> bool:
    """Play every task on the fleet and pass its trajectory to `keep`. An interrupted task is played again, at most
    `retries` times.

    worker: its name in trajectories of episodes that ended in an unexpected error. turn: called by the waiting thread
    about every LEASE_WAIT_S. Returns whether all were played; False if stopped before, after the running episodes had
    drain_s to end. Raises what `keep` raises.
    """
    task_queue = TaskQueue()
    done = threading.Event()
    lock = threading.Lock()
    left = len(tasks)
    tries: dict[str, int] = {}

    def deliver(received: Received, trajectory: Trajectory) -> None:
        nonlocal left
        if trajectory.outcome is Outcome.INTERRUPTED:
            with lock:
                tries[received.task.task_id] = tries.get(received.task.task_id, 0) + 1
                again = tries[received.task.task_id] <= retries
            if again:
                task_queue.put(received)
                return
        keep(trajectory)
        with lock:
            left -= 1
            if left == 0:
                done.set()

    if not tasks:
        return True
    actors = ActorPool(fleet.lease, play, deliver, task_queue, give_up, worker)
    for index, task in enumerate(tasks):
        task_queue.put(Received(LogPosition("", 0, index), task))
    actors.start(min(fleet.count, len(tasks)))
    try:
        while not done.wait(LEASE_WAIT_S) and not stop.is_set():
            actors.check()
            turn()
    finally:
        actors.stop()
        if not actors.join(drain_s):
            give_up.set()
    return done.is_set()


def publish_or_drop_steps(
    retry: Retry, what: str, publish: Callable[[Trajectory], Future[LogPosition | None]], trajectory: Trajectory
) -> Trajectory:
    """Publish `trajectory` and wait for the acknowledgement, however long the broker is unavailable. Returns what was
    written.

    A trajectory that is too large for the broker, or cannot be encoded, is published as interrupted and without steps,
    so that its task ends. Raises AbandonedError, BeyondUseError, and the error that ends the acknowledgement.
    """

    def deliver(record: Trajectory) -> Trajectory:
        queued = retry.call(what, lambda: publish(record), BrokerError, but=(RecordTooLargeError, BeyondUseError))
        retry.acknowledged(what, queued)
        return record

    try:
        return deliver(trajectory)
    except (RecordTooLargeError, WireError) as error:
        log.error("%s: %s; it counts as interrupted", trajectory.task_id, error.what)
        return deliver(without_steps(trajectory, error.what))


def without_steps(trajectory: Trajectory, note: str) -> Trajectory:
    """The same attempt as INTERRUPTED, without steps, verdicts and what judged it, where it cannot be published."""
    return replace(
        trajectory,
        steps=(),
        final_screenshot=None,
        outcome=Outcome.INTERRUPTED,
        outcome_source=NO_JUDGE,
        note=encodable(note[:NOTE_CHARACTERS]),
        unmet=(),
        final_state="",
        reason="",
    )
