"""Aggregates over seeds and tasks, and their intervals, as Agarwal et al. have them (Deep Reinforcement Learning at the
Edge of the Statistical Precipice, 2021, sections 4.1 to 4.3). Pure, and equal numbers give equal bytes.

Scores are (seeds, tasks) arrays of float64: the score of each seed on each task, at least one of either. A bootstrap
that is stratified draws seeds with replacement for each task by itself, so that no task is drawn more often than
another. Of few seeds its intervals are too narrow, which the authors say too: a verdict needs
`distrl.experiment.statistics.difference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

DRAWS: Final = 2_000
"""Resamples of a bootstrap; the authors take as many for the probability of improvement."""
CUT: Final = 0.25
"""The share of the scores that an interquartile mean leaves out at each end."""

Scores = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the 95 % percentile interval of its bootstrap; one seed has none."""

    value: float
    low: float | None
    high: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


def interquartile_mean(scores: Scores) -> float:
    """The mean of the middle half of all seeds and tasks together; of fewer than 4 scores, that of all."""
    return float(_middle_means(scores.reshape(1, -1))[0])


def interquartile_estimate(scores: Scores) -> Estimate:
    """`interquartile_mean` with its interval. Raises ValueError for scores that are none."""
    _refuse_none(scores)
    value = interquartile_mean(scores)
    if len(scores) == 1:
        return Estimate(value, None, None)
    drawn = _stratified(scores, _generator(scores))
    return _estimate(value, _middle_means(drawn.reshape(DRAWS, -1)))


def probability_of_improvement(one: Scores, other: Scores) -> float:
    """The mean over tasks of P(X > Y), for X a seed of `one` and Y a seed of `other` on the task; a tie counts half.

    one, other: (seeds, tasks), with the same tasks; they may have other numbers of seeds.
    """
    return float(_improvement(one[np.newaxis], other[np.newaxis])[0])


def improvement_estimate(one: Scores, other: Scores) -> Estimate:
    """`probability_of_improvement` with its interval. Raises ValueError for scores that are none, or of other tasks."""
    _refuse_none(one, other)
    if one.shape[1] != other.shape[1]:
        raise ValueError(f"scores on {one.shape[1]} tasks and on {other.shape[1]} cannot be compared")
    value, rng = probability_of_improvement(one, other), _generator(one)
    if min(len(one), len(other)) == 1:
        return Estimate(value, None, None)
    drawn = _improvement(_stratified(one, rng), _stratified(other, rng))
    return _estimate(value, drawn)


def flipped(outcomes: Sequence[Sequence[bool]]) -> float | None:
    """The share of tasks that one seed does and another does not, the mean over all pairs of seeds.

    outcomes: of each seed, those of the same tasks in the same order. None for fewer than two seeds.
    """
    done = np.asarray(outcomes, dtype=bool)
    if len(done) < 2:
        return None
    first, second = np.triu_indices(len(done), 1)
    return float((done[first] != done[second]).mean())


def _stratified(scores: Scores, rng: np.random.Generator) -> Scores:
    """(DRAWS, seeds, tasks): every draw takes as many seeds as there are, for each task by itself."""
    seeds, tasks = scores.shape
    drawn: Scores = scores[rng.integers(0, seeds, (DRAWS, seeds, tasks)), np.arange(tasks)]
    return drawn


def _middle_means(scores: Scores) -> Scores:
    """(draws, scores) -> (draws,)."""
    count = scores.shape[1]
    cut = int(CUT * count)
    means: Scores = np.sort(scores, axis=1)[:, cut : count - cut].mean(axis=1)
    return means


def _improvement(one: Scores, other: Scores) -> Scores:
    """(draws, seeds, tasks) of each -> (draws,)."""
    apart = np.sign(one[:, :, np.newaxis] - other[:, np.newaxis])
    shares: Scores = ((apart + 1) / 2).mean(axis=(1, 2, 3))
    return shares


def _estimate(value: float, drawn: Scores) -> Estimate:
    low, high = np.quantile(drawn, (0.025, 0.975))
    return Estimate(value, float(low), float(high))


def _generator(scores: Scores) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(scores.size))


def _refuse_none(*scores: Scores) -> None:
    if any(each.size == 0 for each in scores):
        raise ValueError("no scores")
