"""Experiments of algorithms that learn one suite. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from distrl.config import ArideSettings, PrioritisedReplaySettings
from distrl.experiment.catalogue.arms import A_RIDE, ASYNC, HOME, LEARNED, PHONES, SYNC, learners, until
from distrl.experiment.plan import MODES, Arm, Experiment, Preset
from distrl.offline.ablation.arms import SWEEPS
from distrl.types import Split


def _learning(suite: str) -> str:
    return (
        f"The shipped base model learns the suite `{suite}` with 32 phones. It is warmed up on 128 demonstrations, so "
        "that the arms of a seed begin with the same version 0. An update folds 32 trajectories, by a minibatch for "
        "each. Held-out tasks are played greedily, before and after."
    )


LEARNING: Final = _learning(HOME)


def _algorithms(preset: Preset) -> list[Arm]:
    """Three of the paper's: its own, and DigiRL on the same asynchronous fleet and on several machines in step."""
    return learners(
        preset,
        {
            A_RIDE: (ASYNC,),
            "digirl/async": ("algorithm.type=digirl", ASYNC),
            "digirl/sync": ("algorithm.type=digirl", SYNC),
        },
    )


PARTS: Final[Mapping[str, Sequence[str]]] = MappingProxyType(
    {
        "whole": (ASYNC,),
        "no DPER": (ASYNC, "algorithm.replay.alpha=0"),
        "no Retrace": (ASYNC, "algorithm.retrace=false"),
    }
)
"""A-RIDE, and what is left out as a setting: with alpha 0 all trajectories are drawn alike."""
SMALLER: Final = 4
"""How many times smaller the updates of `components-lag` are."""


def _components(preset: Preset) -> list[Arm]:
    return learners(preset, PARTS)


def _components_general(preset: Preset) -> list[Arm]:
    """On the suite of table 1 on which A-RIDE is furthest above its peers."""
    return learners(preset, PARTS, suite="general")


def _components_lag(preset: Preset) -> list[Arm]:
    """A quarter of the trajectories in each update, which takes a quarter of the time: so the policy moves on four
    times as often while an episode is played. The critics train alone for as many trajectories."""
    smaller = (
        f"learner.trajectories_per_update={PHONES // SMALLER}",
        f"algorithm.minibatches={PHONES // SMALLER}",
        f"algorithm.critic_warmup_updates={ArideSettings().critic_warmup_updates * SMALLER}",
    )
    return [
        replace(
            arm,
            sets=(*arm.sets, *smaller),
            costs=replace(arm.costs, update=replace(arm.costs.update, mean_s=arm.costs.update.mean_s / SMALLER)),
        )
        for arm in learners(preset, PARTS)
    ]


def _dper_weights(preset: Preset) -> list[Arm]:
    """One weight at a time: 0 in quick, in full also every other value of the paper's ranges."""
    shipped, changed = PrioritisedReplaySettings(), dict[str, Sequence[str]]()
    for path, ranged in SWEEPS["dper-weights"].items():
        name = path.rpartition(".")[2]
        for value in ("0", *(ranged if preset == "full" else ())):
            if float(value) != getattr(shipped, name):
                changed[f"{name}={value}"] = (ASYNC, f"{path}={value}")
    return learners(preset, {"as shipped": (ASYNC,), **changed})


def _checkpoints(preset: Preset) -> list[Arm]:
    return learners(preset, {A_RIDE: (ASYNC,)}, Split.TEST)


def _failure_modes(preset: Preset) -> list[Arm]:
    return learners(
        preset,
        {
            A_RIDE: (ASYNC,),
            "digirl/async": ("algorithm.type=digirl", ASYNC),
            "cloning": ("algorithm.type=cloning", ASYNC),
        },
    )


def _vtrace(preset: Preset) -> list[Arm]:
    """V-trace with what A-RIDE has in one place or two."""
    vtrace, steps = ("algorithm.type=vtrace", ASYNC), f"algorithm.lr={ArideSettings().lr}"
    return learners(
        preset,
        {
            "as shipped": vtrace,
            "longer steps": (*vtrace, steps),
            "longer steps, nothing pushed down": (*vtrace, steps, "algorithm.negative_advantage_weight=0"),
            "longer buffer": (*vtrace, f"algorithm.replay.capacity={PrioritisedReplaySettings().capacity}"),
        },
        suite="general",
    )


LEARNERS: Final = (
    Experiment(
        "learning-curves",
        "Success over time and over trajectories, 32 phones (the paper's figure 6a and 6b)",
        LEARNING,
        _algorithms,
        until(3600.0, 24_000.0),
        "success_last",
        "each other",
        (*LEARNED, "per_hour"),
    ),
    Experiment(
        "components",
        "A-RIDE whole, without prioritised replay and without Retrace (the paper's figure 7b)",
        LEARNING,
        _components,
        until(3600.0, 24_000.0),
        "success_last",
        "the first",
        LEARNED,
    ),
    Experiment(
        "components-general",
        "A-RIDE whole, without prioritised replay and without Retrace, on long and hard tasks",
        _learning("general"),
        _components_general,
        until(2400.0, 24_000.0),
        "success_last",
        "the first",
        LEARNED,
    ),
    Experiment(
        "components-lag",
        "A-RIDE whole, without prioritised replay and without Retrace, on data that is more versions old",
        f"{LEARNING} Here an update folds {PHONES // SMALLER}, and takes a quarter of the time.",
        _components_lag,
        until(3600.0, 24_000.0),
        "success_last",
        "the first",
        LEARNED,
    ),
    Experiment(
        "dper-weights",
        "A-RIDE under other weights of the priority (the paper's A.4.3)",
        LEARNING,
        _dper_weights,
        until(2400.0, 12_000.0),
        "success_last",
        "the first",
        LEARNED,
    ),
    Experiment(
        "checkpoints",
        "Held-out success of A-RIDE while it learns (the paper's figure 13)",
        LEARNING + " Here the curve is of held-out tasks, too.",
        _checkpoints,
        until(7200.0, 24_000.0),
        "success_last",
        shown=LEARNED,
    ),
    Experiment(
        "v-trace",
        "V-trace with A-RIDE's learning rate and with A-RIDE's buffer, on long and hard tasks",
        _learning("general")
        + " `longer steps` has A-RIDE's learning rate, and `nothing pushed down` learns from no action that was worse "
        "than expected. `longer buffer` has the capacity of A-RIDE's.",
        _vtrace,
        until(2400.0, 24_000.0),
        "success_last",
        "the first",
        ("success_first", "success_last", "mean_success", *MODES, "trajectories"),
    ),
    Experiment(
        "failure-modes",
        "How attempts at held-out tasks fail, by algorithm (the paper's figure 11)",
        LEARNING + " A failure is at a wrong goal where the agent said that it was done, stuck where the last "
        "half of its steps showed two screens at most, else not recovered.",
        _failure_modes,
        until(3600.0, 24_000.0),
        "success_last",
        "each other",
        ("success_last", *MODES),
    ),
)
