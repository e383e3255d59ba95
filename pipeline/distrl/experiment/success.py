"""Measures versions: greedy episodes on tasks that nobody trained on, outside of virtual time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from distrl.config import Config
from distrl.evaluate.failures import mode_of
from distrl.experiment.novelty import novelty_of
from distrl.experiment.plan import Play
from distrl.experiment.playing import played
from distrl.experiment.weights import Screenshots
from distrl.policy.protocol import Policy
from distrl.policy.registry import policy_of
from distrl.rollout.batcher import Request, decided
from distrl.rollout.episode import Decision, Episode, Observation
from distrl.rollout.wiring import TRUTH
from distrl.store.objects import ObjectStore
from distrl.tasks.suite import EVALUATION_SEED, suite_named
from distrl.types import Outcome, Split, Task, Trajectory, Version


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

    task: Task
    end: str

    @property
    def success(self) -> bool:
        return self.end == Outcome.SUCCESS.value


class Episodes:
    """Greedy episodes of the versions of a cell. Each version plays a suite's tasks once, whatever is asked of them."""

    def __init__(self, config: Config, store: ObjectStore) -> None:
        self._config, self._store, self._policy = config, store, policy_of(config.policy)
        self._of_suite = cache(self._play)

    def of(self, version: Version, play: Play) -> list[Ended]:
        """What `version` comes to on the tasks of `play`."""
        own = self._config.feeder.suite
        found = [
            ended
            for name in play.suites or (own,)
            for ended in self._of_suite(version, name, play.split, play.generation)
        ]
        if play.novelty is None:
            return found
        return [ended for ended in found if novelty_of(ended.task, suite_named(own)) == play.novelty]

    def _play(self, version: Version, suite: str, split: Split, generation: int) -> list[Ended]:
        config = self._config
        count = config.evaluate.validation_episodes if split is Split.VALIDATION else config.evaluate.episodes
        tasks = [suite_named(suite).task(index, EVALUATION_SEED, split) for index in range(count)]
        self._policy.load(self._store.get(version.adapter))
        screenshots = Screenshots()
        found = played(
            config,
            tasks,
            lambda clock: Episode("evaluator", screenshots.keep, TRUTH, clock),
            lambda task: Greedy(self._policy, version),
            lambda place: generation,
        )
        return [Ended(each.task, _end(each)) for each in found]


def success(episodes: Sequence[Ended]) -> float:
    """The share of them that succeeded; NaN of none."""
    return sum(each.success for each in episodes) / len(episodes) if episodes else math.nan


def _end(trajectory: Trajectory) -> str:
    mode = mode_of(trajectory)
    return trajectory.outcome.value if mode is None else mode.value
