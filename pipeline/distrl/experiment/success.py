"""How good versions are: greedy episodes on tasks that nobody trained on, outside of virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrl.config import Config
from distrl.evaluate.failures import mode_of
from distrl.experiment.playing import played
from distrl.experiment.weights import Screenshots
from distrl.policy.protocol import Policy
from distrl.rollout.batcher import Request, decided
from distrl.rollout.episode import Decision, Episode, Observation
from distrl.rollout.wiring import TRUTH
from distrl.types import Outcome, Task, Trajectory, Version


@dataclass(frozen=True, slots=True)
class Greedy:
    """Decides by a policy's likeliest tokens. version: the one that it has loaded."""

    policy: Policy
    version: Version

    @property
    def earlier_screens(self) -> int:
        return self.policy.earlier_screens

    def decide(self, observation: Observation) -> Decision:
        request = Request.of(observation, self.policy.tokenizer, 0.0)
        return decided([request], self.policy, None, self.version, lambda: 0.0)[0]


@dataclass(frozen=True, slots=True)
class Ended:
    """A greedy episode. end: `success`, how it failed (`distrl.evaluate.failures.Mode`), or another outcome."""

    task_id: str
    family: str
    end: str

    @property
    def success(self) -> bool:
        return self.end == Outcome.SUCCESS.value


def greedy(config: Config, policy: Policy, version: Version, adapter: bytes, tasks: Sequence[Task]) -> list[Ended]:
    """What `version` comes to on each of `tasks`; `policy` has its weights afterwards."""
    policy.load(adapter)
    screenshots = Screenshots()
    found = played(
        config,
        tasks,
        lambda clock: Episode("evaluator", screenshots.keep, TRUTH, clock),
        lambda task: Greedy(policy, version),
    )
    return [Ended(each.task_id, each.task.family, _end(each)) for each in found]


def success(episodes: Sequence[Ended]) -> float:
    """The share of them that succeeded."""
    return sum(each.success for each in episodes) / len(episodes)


def _end(trajectory: Trajectory) -> str:
    mode = mode_of(trajectory)
    return trajectory.outcome.value if mode is None else mode.value
