"""Experiments of agents that are played on more than the held-out tasks of their suite: by method, on other suites, and
on phones that were redrawn. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from simphone.generations import NEWEST

from distrl.config.suites import sets_of
from distrl.experiment.catalogue.arms import A_RIDE, ASYNC, BASE, BASE_S, PHONES, SYNC, episodes, until
from distrl.experiment.costs import PAPER, TAILS, CostModel
from distrl.experiment.plan import HELD_OUT, Arm, Experiment, Play, Preset
from distrl.types import Split

COSTS: Final = PAPER.with_tail(TAILS["plain"])
SINGLE: Final = replace(COSTS, update=replace(COSTS.update, mean_s=COSTS.update.mean_s / 2))
"""One machine of two: an update of half of the trajectories takes half as many gradient steps."""
FEW: Final = 8
"""Phones of `methods` in `quick`, which has 54 cells for 15 minutes."""
UNSEEN: Final = ("webshop", "install", "googleapps")
"""What agents of `general` are played on (the paper's figure 12)."""
MIXED: Final = tuple(range(NEWEST))
"""Every generation of the look but the newest."""


def _arm(group: str, name: str, *sets: str, phones: int = PHONES, costs: CostModel = COSTS) -> Arm:
    """A gradient step for each trajectory of an update."""
    return Arm(f"{group}/{name}", phones, costs, (f"algorithm.minibatches={phones}", *sets), group, learns=True)


def _kind(name: str) -> str:
    return f"algorithm.type={name}"


def _base(group: str, *sets: str) -> Arm:
    return replace(_arm(group, BASE, ASYNC, *sets), until=BASE_S)


def _methods(preset: Preset) -> list[Arm]:
    train = Play("train", split=Split.TRAIN)
    return [
        replace(arm, sets=(*arm.sets, *episodes(preset, 24, 2)), plays=(train,))
        for suite in ("general", "webshop")
        for arm in _methods_of(suite, FEW if preset == "quick" else PHONES)
    ]


def _methods_of(suite: str, phones: int) -> Sequence[Arm]:
    named = sets_of(suite)

    def arm(name: str, *sets: str) -> Arm:
        return _arm(suite, name, *sets, *named, phones=phones)

    return (
        arm(A_RIDE, ASYNC),
        arm("digirl/async", _kind("digirl"), ASYNC),
        arm("digirl/sync", _kind("digirl"), SYNC),
        _arm(suite, "digirl/single", _kind("digirl"), SYNC, *named, phones=phones // 2, costs=SINGLE),
        arm("filtered bc", _kind("filtered_bc"), ASYNC),
        arm("cloning", _kind("cloning"), ASYNC),
        replace(arm(BASE, ASYNC), until=BASE_S),
        arm("v-trace", _kind("vtrace"), ASYNC),
        arm("grpo", _kind("grpo"), "algorithm.minibatches=4", ASYNC),
    )


def _generalisation(preset: Preset) -> list[Arm]:
    suite = sets_of("general")
    arms = (
        _arm("general", A_RIDE, ASYNC, *suite),
        _arm("general", "digirl/async", _kind("digirl"), ASYNC, *suite),
        _arm("general", "cloning", _kind("cloning"), ASYNC, *suite),
        _base("general", *suite),
    )
    every = ("general", *UNSEEN)
    plays = (
        Play("general"),
        *(Play(name, (name,)) for name in UNSEEN),
        Play("instance", every, novelty="instance"),
        Play("template", every, novelty="template"),
        Play("app", every, novelty="app"),
    )
    return [
        replace(each, sets=(*each.sets, *episodes(preset, 32, 4)), held_out=Play("unseen suites", UNSEEN), plays=plays)
        for each in arms
    ]


def _drift(preset: Preset) -> list[Arm]:
    plays = tuple(Play(f"generation {each}", generation=each) for each in range(NEWEST + 1))
    mixes = {"generation 0": (0,), "generations mixed": MIXED}
    if preset == "full":
        mixes["generations 0 to 2"] = MIXED[:3]
    arms = list[Arm]()
    for name, mix in mixes.items():
        looks = f"phones.generations={list(mix)}"
        arms += [_arm("home", name, ASYNC, looks), replace(_base("home", looks), name=f"home/{name}, {BASE}")]
    return [
        replace(
            each,
            sets=(*each.sets, *episodes(preset, 64, 8)),
            held_out=replace(HELD_OUT, name=f"generation {NEWEST}", generation=NEWEST),
            plays=plays,
        )
        for each in arms
    ]


AGENTS: Final = (
    Experiment(
        "methods",
        "Success by method on general and webshop, training and held-out tasks (the paper's table 1)",
        f"Agents of {PHONES} phones, in `quick` {FEW}, each trained on the suite that its name begins with; all arms "
        "of a suite and a seed begin with the same version 0, after 128 demonstrations, which is the base model's row. "
        "`digirl/sync` is DigiRL on several machines in step, `digirl/single` on one that has half of the phones and "
        "takes half as long for an update. An update has a gradient step for each trajectory, of GRPO 4. The last "
        "version plays training tasks on phones of their own, and held-out ones. AppAgent needs a chat model and is "
        "not here: `distrl appagent evaluate -s feeder.suite=general` makes its row.",
        _methods,
        until(1800.0, 24_000.0),
        "success_last",
        "the first",
        ("train", "success_first", "success_last", "mean_success", "trajectories", "mean_lag"),
    ),
    Experiment(
        "generalisation",
        "Agents of general on suites that they never trained on (the paper's figure 12)",
        "Trained on `general` alone; `held-out` here is the test tasks of webshop, install and googleapps together. By "
        "how new a task is: `instance` is a trained family's wording about something else, `template` another family "
        "in an app that training opens, `app` an app that no training task opens, over the test tasks of all four.",
        _generalisation,
        until(2400.0, 24_000.0),
        "success_last",
        "the first",
        ("success_first", "success_last", "general", *UNSEEN, "instance", "template", "app", "trajectories"),
    ),
    Experiment(
        "drift",
        "Agents trained on one UI and on several, on each generation of it (the paper's A.1)",
        "Trained on `home`. `generation 0`: all phones have the look that the base model knows. `generations mixed`: "
        f"they take turns with generations 0 to {NEWEST - 1}; so do demonstrations. `held-out` is generation {NEWEST}, "
        "which no agent was trained on.",
        _drift,
        until(3000.0, 24_000.0),
        "success_last",
        "the first",
        ("success_first", "success_last", *(f"generation {each}" for each in range(NEWEST + 1)), "trajectories"),
    ),
)
