"""How good versions are: greedy episodes on tasks that nobody trained on, outside of virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrl.config import Config
from distrl.experiment.playing import played
from distrl.experiment.weights import Screenshots
from distrl.policy.protocol import Policy
from distrl.rollout.batcher import Request, decided
from distrl.rollout.episode import Decision, Episode, Observation
from distrl.rollout.wiring import TRUTH
from distrl.types import Outcome, Task, Version


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


def success(config: Config, policy: Policy, version: Version, adapter: bytes, tasks: Sequence[Task]) -> float:
    """The share of `tasks` that `version` does; `policy` has its weights afterwards."""
    policy.load(adapter)
    screenshots = Screenshots()
    found = played(
        config,
        tasks,
        lambda clock: Episode("evaluator", screenshots.keep, TRUTH, clock),
        lambda task: Greedy(policy, version),
    )
    return sum(each.outcome is Outcome.SUCCESS for each in found) / len(found)
