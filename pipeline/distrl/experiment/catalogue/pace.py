"""Experiments of pace alone: how fast trajectories come. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from distrl.experiment.catalogue.arms import FREE_LAG, SYNC, until
from distrl.experiment.costs import PAPER, TAILS, CostModel
from distrl.experiment.plan import Arm, Experiment, Preset

SCRIPTED: Final = (
    "The imperfect script of the demonstrations acts on the suite `general`, and updates take their time and compute "
    "nothing: pace does not depend on what is learned. An update folds as many trajectories as there are phones."
)


def _ways(name: str, phones: int, costs: CostModel, lags: Sequence[int]) -> list[Arm]:
    """The synchronous arm, which waits for all phones and then for the update, and one for each bound on the lag."""
    suite = "feeder.suite=general"
    asynchronous = [
        Arm(f"{name}/async lag {lag}", phones, costs, (suite, f"feeder.max_lag={lag}"), name) for lag in lags
    ]
    return [*asynchronous, Arm(f"{name}/sync", phones, costs, (suite, SYNC), name)]


def _collection(preset: Preset) -> list[Arm]:
    lags = (FREE_LAG, 4) if preset == "quick" else (FREE_LAG, 16, 8, 4, 2, 1)
    return [arm for tail, sigma in TAILS.items() for arm in _ways(tail, 32, PAPER.with_tail(sigma), lags)]


def _scaling(preset: Preset) -> list[Arm]:
    costs = PAPER.with_tail(TAILS["plain"])
    return [arm for phones in (8, 32, 128, 512) for arm in _ways(f"{phones} phones", phones, costs, (FREE_LAG,))]


PACE: Final = (
    Experiment(
        "collection",
        "Trajectories by the hour of 32 phones, asynchronous and synchronous (the paper's figure 6c)",
        SCRIPTED,
        _collection,
        until(6000.0, 24_000.0),
    ),
    Experiment(
        "scaling",
        "Trajectories by the hour of 8 to 512 phones, against phones that never wait (the paper's figure 6d)",
        SCRIPTED + " Each update takes the same time at every size: a larger fleet's learner is taken to be as "
        "much faster, which docs/scale.md computes.",
        _scaling,
        until(3000.0, 12_000.0),
    ),
)
