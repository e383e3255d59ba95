"""What the arms of several experiments have in common. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from distrl.config.suites import sets_of
from distrl.experiment.costs import PAPER, TAILS
from distrl.experiment.plan import Arm, Preset
from distrl.types import Split

FREE_LAG: Final = 32
"""A bound on the lag that no phone ever feels: lags stay below 12 (docs/experiments.md)."""
ASYNC: Final = f"feeder.max_lag={FREE_LAG}"
SYNC: Final = "feeder.max_lag=0"
LEARNED: Final = ("success_first", "success_last", "mean_success", "trajectories", "mean_lag", "max_lag")
A_RIDE: Final = "a-ride/async"
BASE: Final = "base model"
"""The arm of version 0, which is not trained further."""
BASE_S: Final = 1.0
"""Virtual seconds of that arm: version 0 is published, and no episode ends."""
PHONES: Final = 32
HOME: Final = "home"
POINTS: Final[Mapping[Preset, int]] = MappingProxyType({"quick": 6, "full": 24})
"""Of the curve of an arm on the suite `home`; in `full` so many that they show when something was learned."""
POINTS_ELSEWHERE: Final[Mapping[Preset, int]] = MappingProxyType({"quick": 6, "full": 12})
"""On other suites, whose episodes are longer."""


def episodes(preset: Preset, held_out: int, validation: int) -> tuple[str, ...]:
    """How many a version plays in `quick`; in `full` as shipped, 128 held-out ones and 48 of validation."""
    quick = (f"evaluate.episodes={held_out}", f"evaluate.validation_episodes={validation}")
    return quick if preset == "quick" else ()


def learners(
    preset: Preset, ways: Mapping[str, Sequence[str]], curve: Split = Split.VALIDATION, suite: str = HOME
) -> list[Arm]:  # fmt: skip
    """Arms on a suite. ways: name of an arm -> the settings in which it differs from A-RIDE as shipped."""
    costs = PAPER.with_tail(TAILS["plain"])
    named = () if suite == HOME else sets_of(suite)  # said, the default would make cells on disk anew
    common = ("algorithm.minibatches=32", *named, *(("evaluate.episodes=96",) if preset == "quick" else ()))
    points = (POINTS if suite == HOME else POINTS_ELSEWHERE)[preset]
    return [Arm(name, PHONES, costs, (*common, *sets), suite, True, curve, points) for name, sets in ways.items()]


def until(quick: float, full: float) -> Mapping[Preset, float]:
    return MappingProxyType({"quick": quick, "full": full})
