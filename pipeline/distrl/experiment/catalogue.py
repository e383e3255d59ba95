"""The experiments that there are: which arms each has, and for how long. Pure.

An experiment is a declaration: its arms are names with settings, and what they are compared by is a figure of their
cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from distrl.config import PrioritisedReplaySettings
from distrl.errors import ConfigError
from distrl.experiment.costs import PAPER, TAILS, CostModel
from distrl.experiment.plan import MODES, Arm, Experiment, Preset
from distrl.offline.ablation.arms import SWEEPS
from distrl.types import Split

FREE_LAG: Final = 32
"""A bound on the lag that no phone ever feels: lags stay below 12 (docs/experiments.md)."""
ASYNC: Final = f"feeder.max_lag={FREE_LAG}"
SYNC: Final = "feeder.max_lag=0"
LEARNED: Final = ("success_first", "success_last", "mean_success", "trajectories", "mean_lag", "max_lag")
SCRIPTED: Final = (
    "The imperfect script of the demonstrations acts on the suite `general`, and updates take their time and compute "
    "nothing: pace does not depend on what is learned. An update folds as many trajectories as there are phones."
)
LEARNING: Final = (
    "The shipped base model learns the suite `home` with 32 phones. It is warmed up on 128 demonstrations, so that "
    "the arms of a seed begin with the same version 0. An update folds 32 trajectories, by a minibatch for each. "
    "Held-out tasks are played greedily, before and after."
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


def _learners(
    preset: Preset, ways: Mapping[str, Sequence[str]], curve: Split = Split.VALIDATION
) -> list[Arm]:  # fmt: skip
    """ways: name of an arm -> the settings in which it differs from A-RIDE as shipped."""
    costs = PAPER.with_tail(TAILS["plain"])
    common = ("algorithm.minibatches=32", *(("evaluate.episodes=96",) if preset == "quick" else ()))
    return [Arm(name, 32, costs, (*common, *sets), "home", True, curve) for name, sets in ways.items()]


def _algorithms(preset: Preset) -> list[Arm]:
    """Three of the paper's: its own, and DigiRL on the same asynchronous fleet and on several machines in step."""
    return _learners(
        preset,
        {
            "a-ride/async": (ASYNC,),
            "digirl/async": ("algorithm.type=digirl", ASYNC),
            "digirl/sync": ("algorithm.type=digirl", SYNC),
        },
    )


def _components(preset: Preset) -> list[Arm]:
    """What is left out is its setting: with alpha 0 all trajectories are drawn alike."""
    return _learners(
        preset,
        {
            "whole": (ASYNC,),
            "no DPER": (ASYNC, "algorithm.replay.alpha=0"),
            "no Retrace": (ASYNC, "algorithm.retrace=false"),
        },
    )


def _dper_weights(preset: Preset) -> list[Arm]:
    """One weight at a time: 0 in quick, in full also every other value of the paper's ranges."""
    shipped, changed = PrioritisedReplaySettings(), dict[str, Sequence[str]]()
    for path, ranged in SWEEPS["dper-weights"].items():
        name = path.rpartition(".")[2]
        for value in ("0", *(ranged if preset == "full" else ())):
            if float(value) != getattr(shipped, name):
                changed[f"{name}={value}"] = (ASYNC, f"{path}={value}")
    return _learners(preset, {"as shipped": (ASYNC,), **changed})


def _checkpoints(preset: Preset) -> list[Arm]:
    return _learners(preset, {"a-ride/async": (ASYNC,)}, Split.TEST)


def _failure_modes(preset: Preset) -> list[Arm]:
    return _learners(
        preset,
        {
            "a-ride/async": (ASYNC,),
            "digirl/async": ("algorithm.type=digirl", ASYNC),
            "cloning": ("algorithm.type=cloning", ASYNC),
        },
    )


def _until(quick: float, full: float) -> Mapping[Preset, float]:
    return MappingProxyType({"quick": quick, "full": full})


EXPERIMENTS: Final[Mapping[str, Experiment]] = MappingProxyType(
    {
        each.name: each
        for each in (
            Experiment(
                "collection",
                "Trajectories by the hour of 32 phones, asynchronous and synchronous (the paper's figure 6c)",
                SCRIPTED,
                _collection,
                _until(6000.0, 24_000.0),
            ),
            Experiment(
                "scaling",
                "Trajectories by the hour of 8 to 512 phones, against phones that never wait (the paper's figure 6d)",
                SCRIPTED + " Each update takes the same time at every size: a larger fleet's learner is taken to be as "
                "much faster, which docs/scale.md computes.",
                _scaling,
                _until(3000.0, 12_000.0),
            ),
            Experiment(
                "learning-curves",
                "Success over time and over trajectories, 32 phones (the paper's figure 6a and 6b)",
                LEARNING,
                _algorithms,
                _until(3600.0, 24_000.0),
                "success_last",
                "each other",
                (*LEARNED, "per_hour"),
            ),
            Experiment(
                "components",
                "A-RIDE whole, without prioritised replay and without Retrace (the paper's figure 7b)",
                LEARNING,
                _components,
                _until(3600.0, 24_000.0),
                "success_last",
                "the first",
                LEARNED,
            ),
            Experiment(
                "dper-weights",
                "A-RIDE under other weights of the priority (the paper's A.4.3)",
                LEARNING,
                _dper_weights,
                _until(2400.0, 12_000.0),
                "success_last",
                "the first",
                LEARNED,
            ),
            Experiment(
                "checkpoints",
                "Held-out success of A-RIDE while it learns (the paper's figure 13)",
                LEARNING + " Here the curve is of held-out tasks, too.",
                _checkpoints,
                _until(7200.0, 24_000.0),
                "success_last",
                shown=LEARNED,
            ),
            Experiment(
                "failure-modes",
                "How attempts at held-out tasks fail, by algorithm (the paper's figure 11)",
                LEARNING + " A failure is at a wrong goal where the agent said that it was done, stuck where the last "
                "half of its steps showed two screens at most, else not recovered.",
                _failure_modes,
                _until(3600.0, 24_000.0),
                "success_last",
                "each other",
                ("success_last", *MODES),
            ),
        )
    }
)


def experiment_of(name: str) -> Experiment:
    """Raises ConfigError for a name that is none."""
    if name not in EXPERIMENTS:
        raise ConfigError("experiment", f"{name} is none of {', '.join(EXPERIMENTS)}", "`distrl experiment --list`")
    return EXPERIMENTS[name]
