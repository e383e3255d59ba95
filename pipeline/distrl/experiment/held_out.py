"""The held-out episodes of an arm under every seed, as arrays. Pure.

Each seed plays the same tasks, so they can be compared task by task. The tasks that scores are of, in the sense of
`distrl.experiment.reliable`, are the families of the suite: a single task is done or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distrl.experiment.reliable import Estimate, Scores, flipped, interquartile_estimate
from distrl.types import Outcome


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Which tasks the last version of each seed did."""

    families: tuple[str, ...]
    """The family of each task."""
    done: Sequence[Sequence[bool]]
    """Of each seed, whether it did each task."""

    @property
    def scores(self) -> Scores:
        """(seeds, families), sorted by the family's name: the share of its tasks that were done."""
        done, names = np.asarray(self.done, dtype=np.float64), np.asarray(self.families)
        return np.stack([done[:, names == name].mean(axis=1) for name in sorted(set(self.families))], axis=1)

    @property
    def interquartile(self) -> Estimate:
        return interquartile_estimate(self.scores)

    @property
    def flipped(self) -> float | None:
        return flipped(self.done)


def tasks_of(result: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """(id, family) of each held-out task that a cell has played; none where it does not learn."""
    return tuple((task, family) for task, family, _ in result["episodes"])


def held_out_of(results: Sequence[Mapping[str, Any]]) -> HeldOut | None:
    """The held-out episodes of an arm's cells, in the order of the seeds; None where it does not learn.

    Raises ValueError where they have played other tasks.
    """
    played = {tasks_of(result) for result in results}
    if not any(played):
        return None
    if len(played) > 1:
        raise ValueError("the seeds of an arm have played other tasks")
    (tasks,) = played
    done = [[end == Outcome.SUCCESS.value for _, _, end in result["episodes"]] for result in results]
    return HeldOut(tuple(family for _, family in tasks), done)
