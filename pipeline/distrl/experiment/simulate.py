"""One run of the system in virtual time: feeder, workers with their phones, and a learner, over a log in memory.

    feeder ─▶ tasks by partition ─▶ workers ─▶ the log ─▶ learner ─▶ versions ─▶ workers, feeder
       ▲                                        │
       └────────────────────────────────────────┘

Every arrow takes `CostModel.record_s`. A trajectory's offset is its place in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from distrl.clock import Clock
from distrl.config import Config
from distrl.experiment.costs import Draws
from distrl.experiment.deciding import BatchDecider, VirtualBatcher
from distrl.experiment.feeding import VirtualFeeder
from distrl.experiment.learning import Folded, Learning, VirtualLearner
from distrl.experiment.phone import VirtualPhone
from distrl.experiment.virtual_time import VirtualTime
from distrl.experiment.worker import Played, VirtualWorker
from distrl.rollout.episode import Episode
from distrl.rollout.wiring import TRUTH
from distrl.types import LoggedTrajectory, LogPosition, ObjectRef, Task, Update, Version

PHONES_PER_WORKER: Final = 16
"""As in the paper: two machines for 32 emulators."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """What happened."""

    phones: int
    until: float
    """Virtual seconds of the run."""
    played: Sequence[Played]
    """The episodes whose trajectory is in the log, in its order."""
    folded: Sequence[Folded]
    own_s: float
    """Of all phones together: what they, and lone decisions for them, took."""


@dataclass(frozen=True)
class World:
    """What a run is made of beside its settings."""

    draws: Draws
    phones: int
    decider: Callable[[int], BatchDecider]
    """Makes the policy of a worker, by its number."""
    learning: Learning
    keep: Callable[[bytes], ObjectRef]
    """Stores a screenshot."""
    drawn: bool
    """Whether screens are drawn."""
    phones_per_worker: int = PHONES_PER_WORKER


def simulate(config: Config, world: World, until: float) -> Simulated:
    """Run for `until` virtual seconds. Equal arguments give equal results, whatever else the machine does."""
    run = _Run(config, world)
    run.time.run(until)
    return run.result(until)


class _Run:
    def __init__(self, config: Config, world: World) -> None:
        self.time, self._world = VirtualTime(), world
        costs = world.draws.model
        self._played: list[Played] = []
        clock = Clock(now=lambda: self.time.now, ticks=lambda: self.time.now)
        self._phones = [
            VirtualPhone(
                number,
                self.time,
                world.draws,
                config.phones.popup_probability,
                world.drawn,
                config.phones.generation_of(number),
            )
            for number in range(world.phones)
        ]
        count = -(-world.phones // world.phones_per_worker)
        wait_s = config.worker.batch_wait_ms / 1000
        self._batchers = [VirtualBatcher(self.time, costs, world.decider(number), wait_s) for number in range(count)]
        workers = [
            VirtualWorker(
                self.time, batcher, Episode(f"worker-{number}", world.keep, TRUTH, clock), costs, self._deliver
            )
            for number, batcher in enumerate(self._batchers)
        ]
        self._learner = VirtualLearner(
            self.time, config, world.draws, world.learning, self._journalled, self._published
        )
        partitions: list[Callable[[Task], object]] = [worker.put for worker in workers]
        each = world.phones_per_worker
        phones = [min(each, world.phones - number * each) for number in range(count)]
        self._feeder = VirtualFeeder(self.time, config, partitions, phones, costs.record_s, self._learner.topic)
        for phone in self._phones:
            worker = workers[phone.number // world.phones_per_worker]
            self.time.start(phone.serial, partial(worker.play, phone))
        for number, batcher in enumerate(self._batchers):
            self.time.start(f"policy-{number}", batcher.serve)
        self.time.start("learner", self._learner.learn)

    def result(self, until: float) -> Simulated:
        own_s = sum(phone.own_s_at(until) for phone in self._phones)
        return Simulated(len(self._phones), until, self._played, self._learner.updates, own_s)

    def _deliver(self, played: Played) -> None:
        self.time.after(self._world.draws.model.record_s, partial(self._append, played))

    def _append(self, played: Played) -> None:
        place = LogPosition(self._learner.topic, 0, len(self._played))
        self._played.append(played)
        logged = LoggedTrajectory(place, played.trajectory)
        self._learner.see(logged)
        self._feeder.see_trajectory(logged)

    def _journalled(self, update: Update) -> None:
        self._feeder.see_update(update)

    def _published(self, version: Version) -> None:
        for batcher in self._batchers:
            batcher.see_version(version)
        self._feeder.see_version(version)
