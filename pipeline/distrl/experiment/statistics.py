"""What a few seeds allow to say. Pure, and equal numbers give equal bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

DRAWS: Final = 10_000
"""Resamples of a bootstrap."""
T_975: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
)  # fmt: skip
"""Student's t, 97.5 %, for 1 to 20 degrees of freedom; more are taken for 20."""
ROUNDING: Final = 1e-9
"""Tolerance for degrees of freedom: with equal variances they are a whole number, which rounding may miss by its last
bits."""
Z_975: Final = 1.960
"""The same quantile of the normal distribution."""

Verdict = Literal["better", "worse", "undecided"]


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean over seeds, with the 95 % percentile interval of its bootstrap; one seed has none."""

    seeds: int
    mean: float
    low: float | None
    high: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        return None if self.low is None or self.high is None else (self.low, self.high)


def summary(values: Sequence[float]) -> Summary:
    """A bootstrap of one seed would have no width, and say nothing. Raises ValueError for no value."""
    if not values:
        raise ValueError("no seeds")
    if len(values) == 1:
        return Summary(1, float(values[0]), None, None)
    found = np.asarray(values, dtype=np.float64)
    rng = np.random.Generator(np.random.PCG64(len(found)))
    means = found[rng.integers(0, len(found), (DRAWS, len(found)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Summary(len(found), float(found.mean()), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Difference:
    """The mean of one arm minus that of another, with its 95 % interval. The higher figure is the better one."""

    mean: float
    low: float
    high: float

    @property
    def verdict(self) -> Verdict:
        """Of the first arm against the second; undecided where the interval holds 0."""
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "undecided"


def verdict(*differences: Difference) -> Verdict:
    """What all of them say; undecided where they do not agree."""
    found = {each.verdict for each in differences}
    return found.pop() if len(found) == 1 else "undecided"


def difference(one: Sequence[float], other: Sequence[float]) -> Difference:
    """Welch's interval, which does not take the arms' variances to be equal.

    A bootstrap of three seeds draws means that are too close together, and would find differences where there are none.
    With one seed the interval is infinite. Where seeds differ in neither arm it has no width, and is no more than the
    seeds say: of arms that learn the tasks have to say so, too. Raises ValueError for an arm without seeds.
    """
    if not one or not other:
        raise ValueError("no seeds")
    mean = float(np.mean(one) - np.mean(other))
    if min(len(one), len(other)) < 2:
        return Difference(mean, -math.inf, math.inf)
    parts = [float(np.var(each, ddof=1)) / len(each) for each in (one, other)]
    if sum(parts) == 0:
        return Difference(mean, mean, mean)
    freedom = sum(parts) ** 2 / sum(part**2 / (len(each) - 1) for part, each in zip(parts, (one, other), strict=True))
    half = T_975[min(len(T_975), max(1, math.floor(freedom + ROUNDING))) - 1] * math.sqrt(sum(parts))
    return Difference(mean, mean - half, mean + half)


def difference_over_tasks(one: Sequence[Sequence[bool]], other: Sequence[Sequence[bool]]) -> Difference:
    """Whether other tasks of the suite would find the difference, too: the normal interval of its mean over tasks.

    one, other: of each seed, whether it did each task; the same tasks in the same order. A task's difference is that of
    its means over the seeds. Raises ValueError for no seeds or no tasks.
    """
    if not one or not other or not one[0]:
        raise ValueError("no seeds or no tasks")
    apart = np.mean(one, axis=0) - np.mean(other, axis=0)
    mean = float(apart.mean())
    half = Z_975 * float(apart.std(ddof=1)) / math.sqrt(len(apart)) if len(apart) > 1 else math.inf
    return Difference(mean, mean - half, mean + half)
