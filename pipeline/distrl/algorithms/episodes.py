"""Steps, rewards and outcomes of recorded trajectories, concatenated one trajectory after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from distrl.algorithms.returns import Array, Mask
from distrl.policy.protocol import TrajectoryStep, trajectory_steps
from distrl.replay.circular import Entry
from distrl.types import Outcome


def steps_of(entries: Iterable[Entry]) -> list[TrajectoryStep]:
    return [step for entry in entries for step in trajectory_steps(entry.logged.trajectory)]


def rows_of(entries: Iterable[Entry], numbers: Iterable[int]) -> list[tuple[Entry, int]]:
    """(entry, number of its step) for each of `numbers`, which index the concatenated steps of `entries`."""
    every = [(entry, step) for entry in entries for step in range(len(entry))]
    return [every[number] for number in numbers]


def step_at(entry: Entry, index: int) -> TrajectoryStep:
    return TrajectoryStep(entry.steps, index)


def succeeded(entry: Entry) -> bool:
    return entry.logged.trajectory.outcome is Outcome.SUCCESS


def rewards_and_ends(entries: Sequence[Entry]) -> tuple[Array, Mask]:
    """(rewards, last), both (N,) over the steps of all entries: the sparse reward, and whether a step is the last of
    its trajectory."""
    last = np.zeros(sum(map(len, entries)), dtype=bool)
    last[np.cumsum([len(entry) for entry in entries], dtype=np.int64) - 1] = True
    rewards = np.zeros(len(last))
    rewards[last] = [float(succeeded(entry)) for entry in entries]
    return rewards, last


def outcomes(entries: Iterable[Entry]) -> Array:
    """(n,) 1 for a success, 0 for a failure."""
    return np.array([float(succeeded(entry)) for entry in entries])
