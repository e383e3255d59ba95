"""A worker's loop. Task consumer, phones, policy, store and producer are passed in.

The thread that calls `work` polls tasks, passes them to actors, commits and reports, and never waits for a phone. One
actor thread per phone plays and publishes. A task is committed only after its trajectory is acknowledged.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from distrl.broker.consumer import LoggedTask
from distrl.broker.heartbeats import HeartbeatSender
from distrl.broker.producer import Headers
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.rollout import actor_pool
from distrl.rollout.actor_pool import ActorPool, new_attempt_id, publish_or_drop_steps
from distrl.rollout.back_pressure import AbandonedError, Retry
from distrl.rollout.decider import VersionedDecider
from distrl.rollout.episode import Episode, FallbackJudge, Judge, Phone
from distrl.rollout.reload import Reloader
from distrl.rollout.task_queue import Received, TaskQueue
from distrl.telemetry.monitor import Monitor, Reporter
from distrl.telemetry.tracing import OFF, Tracer
from distrl.types import DeviceHealth, LogPosition, ObjectRef, Record, Task, Trajectory
from distrl.worker.action_judge import AsyncActionJudge, ValidityJudge, max_held
from distrl.worker.membership import Membership
from distrl.worker.metrics import WorkerMetrics, judge_metrics
from distrl.worker.traces import traced

log = logging.getLogger(__name__)

TICK_S = 0.1
"""Longest pause of the polling thread, and so the longest delay of a stop, a heartbeat or a commit."""
FRESH_WAIT_S = 0.5
"""How long an actor waits for its task's `fed_version` before it checks again whether to give up."""
FRESH_LIMIT_S = 600.0
"""Longest wait for that version; only a version that will never be loaded takes so long. (A power loss may lose a
version's record before a worker has seen it, but the learner then publishes a higher one.) A store that fails for less
than this interrupts no task."""
FRESH_LOG_S = 10.0
"""How often an actor logs which version it waits for."""


class Publish(Protocol):
    """As RecordProducer.publish."""

    def __call__(self, topic: str, key: str, record: Record, headers: Headers = ()) -> Future[LogPosition | None]: ...


class Tasks(Protocol):
    """The tasks topic. Only the polling thread calls it."""

    def poll(self, timeout_s: float) -> LoggedTask | None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def commit(self, position: LogPosition) -> None: ...
    def take_for(self, phones: int) -> None: ...
    def drop(self, position: LogPosition) -> None: ...
    @property
    def partitions(self) -> frozenset[int]: ...
    @property
    def brokers_away(self) -> bool: ...
    @property
    def buffered(self) -> int: ...
    @property
    def running(self) -> int: ...
    @property
    def dead_letters(self) -> int: ...


class WorkerPhones(actor_pool.PhonePool, Protocol):
    """The phones of this worker."""

    @property
    def answering(self) -> int:
        """How many answer, without those that another process holds."""

    def health(self) -> tuple[DeviceHealth, ...]: ...


class Worker:
    """The loop that the module's docstring describes. Clients are passed in; tests pass fakes."""

    def __init__(
        self,
        config: Config,
        policy: VersionedDecider,
        reloader: Reloader,
        fleet: WorkerPhones,
        keep: Callable[[bytes], ObjectRef],
        judge: Judge,
        publish: Publish,
        retry: Retry,
        give_up: threading.Event,
        clock: Clock = SYSTEM_CLOCK,
        fallback_judge: FallbackJudge | None = None,
        actions_judge: ValidityJudge | None = None,
        image: Callable[[ObjectRef], bytes] | None = None,
        monitor: Monitor | None = None,
        tracer: Tracer = OFF,
    ) -> None:
        self._config = config
        self._name = config.worker.name
        self._policy = policy
        self._reloader = reloader
        self._fleet = fleet
        self._publish = publish
        self._retry = retry
        self._give_up = give_up
        self._clock = clock
        self._tracer = tracer
        self._episode = Episode(self._name, keep, judge, clock, fallback_judge=fallback_judge)
        self._task_queue = TaskQueue()
        self._metrics = WorkerMetrics()
        self._judge = actions_judge
        self._action_judge = None
        if actions_judge is not None and image is not None and config.judge.validity == "vlm":
            self._action_judge = AsyncActionJudge(
                actions_judge,
                image,
                self._deliver,
                config.judge.validity_actions,
                config.judge.timeout_s,
                max_held(fleet.count, config.feeder.outstanding_for(fleet.count)),
                clock,
            )
        self._actors = ActorPool(fleet.lease, self._play, self._hand_over, self._task_queue, give_up, self._name, clock)
        self._membership = Membership()
        self._phones: int | None = None  # for how many phones tasks are taken; None before the first round
        heartbeats = HeartbeatSender(
            self._name,
            "worker",
            config.worker.heartbeat_s,
            lambda heartbeat: publish("heartbeats", self._name, heartbeat),
            clock,
        )
        self._reporter = Reporter(heartbeats, monitor or Monitor(clock), clock)

    def work(self, tasks: Tasks, stop: threading.Event, check: Callable[[], None]) -> None:
        """Poll, pass tasks to actors and commit until `stop`, then drain. check: raises what ended another thread."""
        self._actors.start(self._fleet.count)
        if self._action_judge is not None:
            self._action_judge.start()
        try:
            while not stop.is_set():
                check()
                self._actors.check()
                if self._action_judge is not None:
                    self._action_judge.check()
                self._round(tasks)
        finally:
            self._drain(tasks)

    def _round(self, tasks: Tasks) -> None:
        """One round: check the phones, poll a task for a free actor, commit, report."""
        self._follow_phones(tasks)
        if self._task_queue.free():
            tasks.resume()
            received = tasks.poll(TICK_S)
            if received is not None:
                self._task_queue.put(Received(received.position, received.task, received.headers))
        else:
            self._keep_up(tasks)
            self._task_queue.wait_useful(TICK_S)
        self._commit(tasks)
        self._report(tasks)

    def _follow_phones(self, tasks: Tasks) -> None:
        """Stay in the workers' group only while a phone answers (membership.py)."""
        wanted = self._membership.wanted(self._fleet.answering, self._clock.ticks())
        before, self._phones = self._phones, wanted
        if wanted != before:
            tasks.take_for(wanted)
        if not wanted and before != 0:
            for received in self._task_queue.drop():
                tasks.drop(received.position)
            log.warning(
                "no phone answers (%s): this worker takes no tasks until one does; `distrl devices` shows each",
                self._states(),
            )
        elif wanted and not before:
            log.info("%d of %d phones answer: taking tasks", wanted, self._fleet.count)
        if self._membership.should_warn(len(tasks.partitions), tasks.brokers_away, self._clock.ticks()):
            log.warning(
                "this worker has no partition of the tasks topic, so its %d phones get no task: there are more workers "
                "than partitions (kafka.task_partitions, %d here); raise it and run `distrl topics ensure --alter`, "
                "or let fewer workers have more phones each",
                wanted,
                self._config.kafka.task_partitions,
            )

    def _states(self) -> str:
        states = Counter(device.state for device in self._fleet.health())
        return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))

    def _keep_up(self, tasks: Tasks) -> None:
        """Poll, paused, to stay in the group and to read ahead; a task that still comes waits for a free actor."""
        tasks.pause()
        received = tasks.poll(0)
        if received is not None:
            self._task_queue.put(Received(received.position, received.task, received.headers))

    def _commit(self, tasks: Tasks) -> None:
        for position in self._task_queue.finished():
            tasks.commit(position)

    def _drain(self, tasks: Tasks) -> None:
        """Let running episodes end, and commit each, for at most worker.drain_timeout_s; then give up the rest."""
        self._actors.stop()
        if self._action_judge is not None:
            self._action_judge.stop_asking()
        deadline = self._clock.ticks() + self._config.worker.drain_timeout_s
        while self._clock.ticks() < deadline and not self._drained():
            self._keep_up(tasks)
            self._commit(tasks)
            self._report(tasks)
        self._give_up.set()
        self._commit(tasks)
        self._report(tasks, at_once=True)

    def _drained(self) -> bool:
        """Whether every actor has ended and every trajectory held for the judge is delivered."""
        if not self._actors.join(TICK_S):
            return False
        if self._action_judge is None:
            return True
        self._action_judge.stop()
        self._action_judge.join(TICK_S)
        return not self._action_judge.running

    def _play(self, task: Task, phone: Phone) -> Trajectory:
        self._wait_fresh(task)
        self._metrics.begin()
        try:
            with self._policy.episode():
                trajectory = self._episode.run(task, new_attempt_id(), phone, self._policy)
        finally:
            self._metrics.end()
        return trajectory

    def _wait_fresh(self, task: Task) -> None:
        """Wait until the task's `fed_version` or a newer one is loaded: the feeder's bound on the lag relies on it.

        Raises BrokerError after FRESH_LIMIT_S, which makes the episode interrupted, so that the task is fed again, and
        PolicyEndedError where the policy has failed.
        """
        began = logged_at = self._clock.ticks()
        while not self._policy.wait_loaded(max(0, task.fed_version), FRESH_WAIT_S):
            if self._policy.loaded is not None and self._reloader.refused(task.fed_version):
                return  # the newer version was refused, with an alert: play with the old weights
            if self._give_up.is_set():
                raise AbandonedError(task.task_id, "was waiting for a version", "its task is delivered again")
            self._policy.check()  # one that has failed loads nothing, and no longer waits
            loaded, now = self._policy.loaded, self._clock.ticks()
            have = "none" if loaded is None else f"version {loaded.version}"
            if now - began > FRESH_LIMIT_S:
                raise BrokerError(
                    task.task_id,
                    f"was fed under version {task.fed_version}, which was not loaded within {FRESH_LIMIT_S:g} s; "
                    f"loaded is {have}",
                    "check that the store has the version's adapter and that `distrl learner` runs",
                )
            if now - logged_at > FRESH_LOG_S:
                logged_at = now
                log.info("task %s waits for version %d; loaded is %s", task.task_id, task.fed_version, have)

    def _hand_over(self, received: Received, trajectory: Trajectory) -> None:
        """Count the episode, however it ended, and deliver it or pass it to the action judge, which delivers it."""
        self._metrics.add(trajectory)
        deliver = self._deliver if self._action_judge is None else self._action_judge.hand_over
        deliver(received, trajectory)

    def _deliver(self, received: Received, trajectory: Trajectory) -> None:
        """Publish, wait for the acknowledgement, and let the polling thread commit the task."""
        with traced(self._tracer, received.headers, trajectory, self._clock) as headers:
            publish_or_drop_steps(
                self._retry,
                f"publishing {trajectory.task_id}",
                lambda record: self._publish("trajectories", record.task_id, record, headers),
                trajectory,
            )
        self._task_queue.finish(received.position)

    def _report(self, tasks: Tasks, *, at_once: bool = False) -> None:
        """Report progress and what the worker waits for; send metrics too if a heartbeat is due or `at_once`."""
        monitor = self._reporter.monitor
        monitor.progress()
        if self._policy.loaded is None:
            monitor.waits_for("a version to load")
        elif not self._fleet.answering:
            monitor.waits_for("a phone that answers")
        else:
            monitor.ready()
        if not (at_once or self._reporter.due):
            return
        reload = self._reloader.state
        metrics = self._metrics.metrics() | {
            "reloads": float(reload.reloads),
            "reload_alerts": float(reload.alerts),
            "reload_seconds": reload.seconds,
            "queue": float(self._task_queue.queued() + tasks.buffered),
            "running": float(tasks.running),
            "publish_stalls": float(self._retry.stalls),
            "stalled": float(self._retry.stalled_now),
            "dead_letters": float(tasks.dead_letters),
        }
        if self._judge is not None:
            metrics |= judge_metrics(self._judge.counted)
        if self._action_judge is not None:
            metrics |= self._action_judge.metrics()
        health, partitions = self._fleet.health(), sorted(tasks.partitions)
        labelled = {"outcomes": self._metrics.outcomes()}
        self._reporter.report(self._policy.loaded, metrics, health, partitions, labelled, at_once=at_once)
