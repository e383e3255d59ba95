"""A worker in virtual time: phones, one policy for them, and a queue of tasks.

Each phone is an actor that does what an actor of `distrl.rollout.actor_pool` does: it takes a task, waits for the
version that the task was fed under, plays the real episode and publishes the trajectory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from distrl.experiment.costs import CostModel
from distrl.experiment.deciding import VirtualBatcher
from distrl.experiment.phone import VirtualPhone
from distrl.experiment.virtual_time import Actor, VirtualTime
from distrl.rollout.episode import Decision, Episode, Observation
from distrl.types import Task, Trajectory


@dataclass(frozen=True, slots=True)
class Played:
    """An episode as it went on its phone, in virtual seconds."""

    phone: int
    began: float
    """When the phone took the task."""
    ended: float
    own_s: float
    """What the phone and lone decisions took: without waiting for a version or for others in a batch."""
    trajectory: Trajectory


class VirtualWorker:
    """deliver: publishes what was played, whose acknowledgement comes after costs.record_s."""

    def __init__(
        self, time: VirtualTime, batcher: VirtualBatcher, episode: Episode, costs: CostModel,
        deliver: Callable[[Played], None],
    ) -> None:  # fmt: skip
        self._time, self._batcher, self._episode, self._costs = time, batcher, episode, costs
        self._deliver = deliver
        self._tasks: deque[Task] = deque()
        self._idle: deque[Actor] = deque()

    def put(self, task: Task) -> None:
        """A task of this worker's partition has come."""
        self._tasks.append(task)
        if self._idle:
            self._time.wake(self._idle.popleft())

    def play(self, phone: VirtualPhone) -> None:
        """The body of a phone's actor: one task after the other."""
        number = 0
        while True:
            task = self._next()
            self._deliver(self._played(task, phone, f"{phone.number}-{number}"))
            phone.count(self._costs.record_s)
            self._time.sleep(self._costs.record_s)
            number += 1

    def _next(self) -> Task:
        while not self._tasks:
            self._idle.append(self._time.current)
            self._time.pause()
        return self._tasks.popleft()

    def _played(self, task: Task, phone: VirtualPhone, attempt_id: str) -> Played:
        began, own_s = self._time.now, phone.own_s
        self._batcher.wait_loaded(task.fed_version)
        with self._batcher.episode():
            trajectory = self._episode.run(
                task, attempt_id, phone, _Deciding(self._batcher, phone, self._costs.own_decision_s)
            )
        return Played(phone.number, began, self._time.now, phone.own_s - own_s, trajectory)


@dataclass(frozen=True, slots=True)
class _Deciding:
    """The worker's policy as an episode asks it; what a lone decision takes is the phone's own time."""

    batcher: VirtualBatcher
    phone: VirtualPhone
    decision_s: float

    @property
    def earlier_screens(self) -> int:
        return self.batcher.earlier_screens

    def decide(self, observation: Observation) -> Decision:
        self.phone.count(self.decision_s)
        return self.batcher.decide(observation)
