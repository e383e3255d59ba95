"""Fleets small enough to follow by hand: constant latencies, phones of given speeds, a policy that is done at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from distrl.config import Config, load
from distrl.experiment.costs import CostModel, Draws, Latency
from distrl.experiment.learning import NoLearning
from distrl.experiment.simulate import Simulated, World, simulate
from distrl.rollout.batcher import Request
from distrl.rollout.episode import Decision, Observation
from distrl.types import Action, ActionKind, ObjectRef, Version

NOTHING = Latency(0.0)
SHOT = ObjectRef("screenshots/none", "0" * 64, 0)


def costs(
    reset: Latency = NOTHING, look: Latency = NOTHING, act: Latency = NOTHING, update: Latency = NOTHING,
    decision_s: float = 0.0, decision_row_s: float = 0.0, record_s: float = 0.0, reload_s: float = 0.0,
) -> CostModel:  # fmt: skip
    """What is not named costs nothing."""
    return CostModel("a test", reset, look, act, decision_s, decision_row_s, record_s, reload_s, update)


@dataclass(frozen=True, slots=True)
class ResetsBy(Draws):
    """Phone n takes seconds[n] to reset."""

    seconds: Sequence[float] = ()

    def reset(self, phone: int, episode: int) -> float:
        return self.seconds[phone]


@dataclass(frozen=True, slots=True)
class EndsBy(Draws):
    """Phone n takes seconds[n] for the last look, so after its only decision."""

    seconds: Sequence[float] = ()

    def look(self, phone: int, episode: int, step: int) -> float:
        return self.seconds[phone] if step else 1.0


@dataclass
class DoneAtOnce:
    """Says at the first look that the task is done. really_s: how long it really takes for that."""

    really_s: Callable[[], float] = lambda: 0.0
    batches: list[tuple[int, int]] = field(default_factory=list)
    """(version, rows) of each batch."""
    earlier_screens: int = 0

    def request(self, observation: Observation, asked: float) -> Request:
        return Request(observation, (), 0, asked)

    def load(self, version: Version) -> None:
        pass

    def decide(self, batch: Sequence[Request], version: Version, ticks: Callable[[], float]) -> Sequence[Decision]:
        self.batches.append((version.version, len(batch)))
        time.sleep(self.really_s())
        action = Action(ActionKind.COMPLETE)
        return [Decision(action, "", (), (), 0.0, version.version, version.adapter.sha256) for _ in batch]


def settings(*sets: str) -> Config:
    """Nobody waits for a batch to fill."""
    return load(environ={}, sets=("run=experiment", "worker.batch_wait_ms=0", *sets))


def played(
    draws: Draws, phones: int, until: float, *sets: str, decider: DoneAtOnce | None = None
) -> Simulated:  # fmt: skip
    config = settings(*sets)
    made = decider or DoneAtOnce()
    world = World(draws, phones, lambda worker: made, NoLearning(config), lambda png: SHOT, drawn=False)
    return simulate(config, world, until)
