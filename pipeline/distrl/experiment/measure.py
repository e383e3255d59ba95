"""Figures of one run in virtual time. Pure.

Definitions
- rate, asynchronous: trajectories that reached the log, by the hour.
- rate, synchronous: those of whole rounds, until the last of them was folded. Most of a round comes before its slowest
  episode, so to count what has come of a round that the end of the run cuts would count too many.
- own time of a phone: its latencies and those of a lone decision; what is left of the run it waited, for a task, for a
  version or for others in a batch.
- bound, asynchronous: the rate had no phone ever waited, which is the rate over the phones' share of own time.
- bound, synchronous: the rate had each round only waited for its slowest episode, its update and the records and the
  reload in between. Its share is that of whole rounds, too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from distrl.experiment.costs import CostModel
from distrl.experiment.plan import MODES
from distrl.experiment.simulate import Simulated
from distrl.types import Outcome

HOUR: Final = 3600.0
POINTS: Final = 60
"""Of a curve over time."""

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """at: virtual seconds. trajectories: that the version of that time has learned from. success: its own, greedy."""

    at: float
    trajectories: int
    success: float


def learned(curve: Sequence[CurvePoint], first: float, last: float, ends: Sequence[str]) -> Figures:
    """first, last: held-out success of the first and of the last version. ends: how the last one's episodes ended.

    mean_success: of the curve over time, which is the higher the sooner something is learned. Of each failure mode, its
    share of all episodes.
    """
    between = [(a.success + b.success) / 2 * (b.at - a.at) for a, b in pairwise(curve)]
    return {
        "success_first": first,
        "success_last": last,
        "success_gained": last - first,
        "mean_success": sum(between) / (curve[-1].at - curve[0].at),
        **{mode: ends.count(mode) / len(ends) for mode in MODES},
    }


def figures(run: Simulated, costs: CostModel, *, synchronous: bool, trajectories_per_round: int) -> Figures:
    """Every figure of a run; NaN where there is nothing to take it from."""
    rate = len(run.played) / run.until * HOUR
    share = run.own_s / (run.phones * run.until)
    bound, share_of_bound = _over(rate, share), share
    if synchronous:
        rate, bound, share_of_bound = _rounds(run, costs, trajectories_per_round)
    lags = [lag for each in run.folded for lag in each.lags]
    return {
        "trajectories": float(len(run.played)),
        "per_hour": rate,
        "bound_per_hour": bound,
        "share_of_bound": share_of_bound,
        "own_time_share": share,
        "episode_own_s": _mean([each.own_s for each in run.played]),
        "longest_episode_own_s": max((each.own_s for each in run.played), default=math.nan),
        "steps": _mean([len(each.trajectory.steps) for each in run.played]),
        "success": _mean([each.trajectory.outcome is Outcome.SUCCESS for each in run.played]),
        "updates": float(len(run.folded)),
        "mean_lag": _mean(lags),
        "max_lag": float(max(lags, default=math.nan)),
    }


def collected(run: Simulated) -> list[tuple[float, int]]:
    """(virtual seconds, trajectories until then) at POINTS times."""
    times = [run.until * (point + 1) / POINTS for point in range(POINTS)]
    return [(at, sum(each.ended <= at for each in run.played)) for at in times]


def _rounds(run: Simulated, costs: CostModel, trajectories: int) -> tuple[float, float, float]:
    """The synchronous rate, its bound and the share of it, from the rounds that were folded; NaN where none was."""
    rounds: dict[int, list[float]] = defaultdict(list)
    for each in run.played:
        rounds[each.trajectory.task.fed_version].append(each.own_s)
    slowest = [max(own) for own in rounds.values() if len(own) == trajectories][: len(run.folded)]
    if not slowest:
        return math.nan, math.nan, math.nan
    between = costs.record_s + max(costs.record_s, costs.reload_s) + costs.record_s
    needed = _mean(slowest) + between + _mean([each.took_s for each in run.folded])
    last = run.folded[-1]
    took = (last.at + last.took_s) / len(run.folded)
    return trajectories / took * HOUR, trajectories / needed * HOUR, needed / took


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _over(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
