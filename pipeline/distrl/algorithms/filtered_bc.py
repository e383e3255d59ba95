"""Filtered behaviour cloning: imitate only what succeeded, −E[log π].

A baseline of DigiRL (arXiv 2406.11896), to see what reinforcement learning adds. It has no critics and does not correct
for a trajectory's age: with stale workers it imitates an older policy's successes.
"""

from __future__ import annotations

from typing import Final

from distrl.algorithms.cloning import DEMONSTRATIONS, Imitation
from distrl.algorithms.protocol import Context, Phase, is_replayed
from distrl.algorithms.uniform import UniformMemory
from distrl.config import Config
from distrl.config.algorithms import FilteredBcSettings
from distrl.types import Outcome, Trajectory

FILTERED: Final = Phase("filtered-bc", trains_policy=True)


def filtered_memory(config: Config) -> UniformMemory:
    """The successes, with those of demonstrations if algorithm.replay.demonstrations."""
    assert isinstance(config.algorithm, FilteredBcSettings)
    replay = config.algorithm.replay

    def succeeded(trajectory: Trajectory) -> bool:
        return trajectory.outcome is Outcome.SUCCESS and is_replayed(trajectory, replay)

    return UniformMemory(config, config.algorithm, succeeded, lambda u: FILTERED, DEMONSTRATIONS)


def filtered_bc(context: Context) -> Imitation:
    settings = context.config.algorithm
    return Imitation(context, filtered_memory(context.config), settings, lambda done: settings.lr, decay=0.0)
