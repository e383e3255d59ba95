"""A worker at work, over its edges: a topic of tasks, phones, a policy, a store and a producer are handed in.

The thread that calls `work` polls, hands out, commits and sends heartbeats, and never waits for a phone; one actor
thread per phone plays and publishes. Order of every task: trajectory published, acknowledged, then committed.
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
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.rollout import actor_pool
from distrl.rollout.actor_pool import ActorPool, deliver_whole_or_bare, new_attempt_id
from distrl.rollout.batcher import Batcher
from distrl.rollout.episode import Episode, FallbackJudge, Judge, Phone
from distrl.rollout.reload import Reloader
from distrl.rollout.retry import AbandonedError, Retry
from distrl.rollout.task_queue import Received, TaskQueue
from distrl.types import DeviceHealth, LogPosition, ObjectRef, Record, Task, Trajectory
from distrl.worker.action_judge import AsyncActionJudge, ValidityJudge, most_held
from distrl.worker.membership import Membership
from distrl.worker.metrics import WorkerMetrics, spent

log = logging.getLogger(__name__)

TICK_S = 0.1
"""Longest pause of the polling thread: a stop, a heartbeat and a commit wait no longer than this."""
FRESH_WAIT_S = 0.5
"""One wait of an actor for the version that its task asks for; in between it looks whether it should give up."""
FRESH_LIMIT_S = 600.0
"""Longest wait for that version. A loss of power may take a version's record before a worker has seen it; the learner
then publishes a higher one, so only what nobody will ever load waits as long. A store that is away for less costs
nothing."""
FRESH_SAY_S = 10.0
"""How often an actor says which version it waits for."""

Publish = Callable[[str, str, Record], Future[LogPosition | None]]


class Tasks(Protocol):
    """The tasks topic. Every method belongs to the polling thread."""

    def poll(self, timeout_s: float) -> LoggedTask | None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def commit(self, position: LogPosition) -> None: ...
    def take_for(self, phones: int) -> None: ...
    def drop(self, position: LogPosition) -> None: ...
    @property
    def partitions(self) -> frozenset[int]: ...
    @property
    def buffered(self) -> int: ...
    @property
    def running(self) -> int: ...


class Fleet(actor_pool.Fleet, Protocol):
    """The phones of this worker. answering: how many answer it; one that another process has is none of them."""

    @property
    def answering(self) -> int: ...
    def health(self) -> tuple[DeviceHealth, ...]: ...


class Worker:
    """A worker over its edges: whatever is handed in may be a real client or a test's own."""

    def __init__(
        self,
        config: Config,
        policy: Batcher,
        reloader: Reloader,
        fleet: Fleet,
        keep: Callable[[bytes], ObjectRef],
        judge: Judge,
        publish: Publish,
        retry: Retry,
        give_up: threading.Event,
        clock: Clock = SYSTEM_CLOCK,
        fallback_judge: FallbackJudge | None = None,
        actions_judge: ValidityJudge | None = None,
        image: Callable[[ObjectRef], bytes] | None = None,
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
                most_held(fleet.count, config.feeder.outstanding_for(fleet.count)),
                clock,
            )
        deliver = self._deliver if self._action_judge is None else self._action_judge.hand_over
        self._actors = ActorPool(fleet.lease, self._play, deliver, self._task_queue, give_up, self._name, clock)
        self._membership = Membership()
        self._phones: int | None = None  # for how many tasks are taken; None before the first look
        self._heartbeats = HeartbeatSender(
            self._name, "worker", config.worker.heartbeat_s, lambda beat: publish("heartbeats", self._name, beat), clock
        )

    def work(self, tasks: Tasks, stop: threading.Event, check: Callable[[], None]) -> None:
        """Poll, hand out and commit until `stop`, then drain. check: raises what ended another thread."""
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
        """One look at everything: the phones, a task for a free actor, what is finished, the heartbeat."""
        self._follow_phones(tasks)
        if self._task_queue.free():
            tasks.resume()
            received = tasks.poll(TICK_S)
            if received is not None:
                self._task_queue.put(Received(received.position, received.task))
        else:
            self._keep_up(tasks)
            self._task_queue.wait_useful(TICK_S)
        self._commit(tasks)
        self._beat(tasks)

    def _follow_phones(self, tasks: Tasks) -> None:
        """In the workers' group while a phone answers, and only then: see membership.py."""
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
        if self._membership.superfluous(len(tasks.partitions), self._clock.ticks()):
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
        """Stay in the group without taking a task; one that came all the same waits for the next free actor."""
        tasks.pause()
        received = tasks.poll(0)
        if received is not None:
            self._task_queue.put(Received(received.position, received.task))

    def _commit(self, tasks: Tasks) -> None:
        for position in self._task_queue.finished():
            tasks.commit(position)

    def _drain(self, tasks: Tasks) -> None:
        """Let running episodes end, committing each, for as long as a stop may take."""
        self._actors.stop()
        if self._action_judge is not None:
            self._action_judge.ask_no_more()
        deadline = self._clock.ticks() + self._config.worker.drain_timeout_s
        while self._clock.ticks() < deadline and not self._drained():
            self._keep_up(tasks)
            self._commit(tasks)
            self._beat(tasks)
        self._give_up.set()
        self._commit(tasks)

    def _drained(self) -> bool:
        """Whether every actor has ended, and then every trajectory that a judge was to see is delivered."""
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
        self._metrics.add(trajectory)
        return trajectory

    def _wait_fresh(self, task: Task) -> None:
        """Until the version is loaded that was the newest when the task was fed: the feeder's bound counts on it.

        Raises BrokerError after FRESH_LIMIT_S: the task then counts as interrupted and is fed again.
        """
        began = said = self._clock.ticks()
        while not self._policy.wait_loaded(max(0, task.fed_version), FRESH_WAIT_S):
            if self._policy.loaded is not None and self._reloader.refused(task.fed_version):
                return  # the newer one is no good, and the alert is raised: the old weights go on
            if self._give_up.is_set():
                raise AbandonedError(task.task_id, "waits for a version", "its task is delivered again")
            loaded, now = self._policy.loaded, self._clock.ticks()
            have = "none" if loaded is None else f"version {loaded.version}"
            if now - began > FRESH_LIMIT_S:
                raise BrokerError(
                    task.task_id,
                    f"was fed under version {task.fed_version}, which did not come within {FRESH_LIMIT_S:g} s; "
                    f"loaded is {have}",
                    "see whether the store has the version's adapter and `distrl learner` runs",
                )
            if now - said > FRESH_SAY_S:
                said = now
                log.info("task %s waits for version %d; loaded is %s", task.task_id, task.fed_version, have)

    def _deliver(self, received: Received, trajectory: Trajectory) -> None:
        """Published and acknowledged; then the polling thread may commit the task."""
        deliver_whole_or_bare(
            self._retry,
            f"publishing {trajectory.task_id}",
            lambda record: self._publish("trajectories", record.task_id, record),
            trajectory,
        )
        self._task_queue.finish(received.position)

    def _beat(self, tasks: Tasks) -> None:
        if not self._heartbeats.due:
            return
        reload = self._reloader.state
        metrics = self._metrics.metrics() | {
            "reloads": float(reload.reloads),
            "reload_alerts": float(reload.alerts),
            "reload_seconds": reload.seconds,
            "queue": float(self._task_queue.queued() + tasks.buffered),
            "running": float(tasks.running),
            "publish_stalls": float(self._retry.stalls),
        }
        if self._judge is not None:
            metrics |= spent(self._judge.counted)
        if self._action_judge is not None:
            metrics |= self._action_judge.metrics()
        self._heartbeats.send(self._policy.loaded, metrics, self._fleet.health(), sorted(tasks.partitions))
