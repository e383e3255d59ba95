"""How soon arms learn: when the curve over time is at a share of the best success for the first time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from distrl.experiment.statistics import DRAWS

SHARE: Final = 0.8
"""The share of the best success that is to be reached."""

Floats = NDArray[np.float64]
Curves = Sequence[Sequence[Sequence[float]]]
"""Of each seed its points, as [virtual seconds, trajectories, success]; at the same times."""


@dataclass(frozen=True, slots=True)
class Reached:
    """success: that is to be reached. at_s: virtual seconds until it is. low_s, high_s: the 95 % percentile interval
    of its bootstrap over the seeds, which one seed has not. Each is None where it is not reached."""

    success: float
    at_s: float | None
    low_s: float | None
    high_s: float | None


def goal(arms: Iterable[Curves]) -> float:
    """SHARE of the success at which the mean curve of the best of the arms ends."""
    return SHARE * max(float(_success(curves)[:, -1].mean()) for curves in arms)


def reached(curves: Curves, success: float) -> Reached:
    """When the mean curve over the seeds reaches `success`, with straight lines between its points."""
    times, found = np.array([at for at, *_ in curves[0]]), _success(curves)
    (at,) = _first(times, found.mean(axis=0, keepdims=True), success)
    if len(found) == 1:
        return Reached(success, _finite(at), None, None)
    rng = np.random.Generator(np.random.PCG64(len(found)))
    means = found[rng.integers(0, len(found), (DRAWS, len(found)))].mean(axis=1)
    # between two draws nothing is interpolated: one of them may never be there
    low, high = np.quantile(_first(times, means, success), (0.025, 0.975), method="inverted_cdf")
    return Reached(success, _finite(at), _finite(low), _finite(high))


def _finite(seconds: float) -> float | None:
    return float(seconds) if math.isfinite(seconds) else None


def _success(curves: Curves) -> Floats:
    """(seeds, points)"""
    return np.array([[success for *_, success in points] for points in curves])


def _first(times: Floats, curves: Floats, success: float) -> Floats:
    """(n,) when each of (n, points) curves is at `success`; infinite where it never is, and where nothing is asked for:
    the best of arms that all fail has 0, which is not reached by failing."""
    there = (curves >= success) & (success > 0)
    after = there.argmax(axis=1)
    rows, before = np.arange(len(curves)), np.maximum(after - 1, 0)
    rise = curves[rows, after] - curves[rows, before]
    part = np.where(rise > 0, (success - curves[rows, before]) / np.where(rise > 0, rise, 1.0), 0.0)
    at = times[before] + part * (times[after] - times[before])
    return np.where(there.any(axis=1), at, math.inf)
