"""The experiments by name: which arms each has, and for how long. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from distrl.config import Config, load
from distrl.errors import ConfigError
from distrl.experiment.costs import PAPER, TAILS, CostModel

Preset = Literal["quick", "full"]
FORMAT: Final = 1
"""Raised whenever the same arm and seed would give other figures: cells that are on disk are then made again."""
FREE_LAG: Final = 32
"""A bound on the lag that no phone ever feels: lags stay below 12 (docs/experiments.md)."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of running the system. sets: its settings, as path=value."""

    name: str
    phones: int
    costs: CostModel
    sets: tuple[str, ...]
    group: str = ""
    """Arms of one group are compared with the synchronous one among them."""
    learns: bool = False
    """Whether the policy acts and updates compute; else a script acts, and they take their time alone."""

    def config(self, seed: int) -> Config:
        """The settings; neither a file nor a variable of the machine changes them."""
        base = ("run=experiment", f"learner.seed={seed}", f"learner.trajectories_per_update={self.phones}")
        return load(environ={}, sets=(*base, *self.sets))

    @property
    def synchronous(self) -> bool:
        return "feeder.max_lag=0" in self.sets


@dataclass(frozen=True, slots=True)
class Cell:
    """An arm under a seed: what one process computes."""

    arm: Arm
    seed: int
    until: float
    """Virtual seconds."""

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of all that its figures depend on, but the code."""
        content = {
            "format": FORMAT,
            "seed": self.seed,
            "until": self.until,
            "arm": [self.arm.name, self.arm.phones, self.arm.sets, self.arm.costs.to_dict(), self.arm.learns],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def file(self) -> str:
        return f"{self.arm.name.replace('/', '-').replace(' ', '-')}-seed-{self.seed}.json"


@dataclass(frozen=True, slots=True)
class Experiment:
    """title: what it answers. about: what a reader must know of how."""

    name: str
    title: str
    about: str
    arms: Callable[[Preset], Sequence[Arm]]
    until: Mapping[Preset, float]
    """Virtual seconds."""
    compared: str = "per_hour"
    """The figure by which arms are compared."""

    def cells(self, preset: Preset, seeds: Sequence[int]) -> list[Cell]:
        return [Cell(arm, seed, self.until[preset]) for arm in self.arms(preset) for seed in seeds]


def _ways(name: str, phones: int, costs: CostModel, lags: Sequence[int]) -> list[Arm]:
    """The synchronous arm, which waits for all phones and then for the update, and one for each bound on the lag."""
    suite = "feeder.suite=general"
    asynchronous = [
        Arm(f"{name}/async lag {lag}", phones, costs, (suite, f"feeder.max_lag={lag}"), name) for lag in lags
    ]
    return [*asynchronous, Arm(f"{name}/sync", phones, costs, (suite, "feeder.max_lag=0"), name)]


def _collection(preset: Preset) -> list[Arm]:
    lags = (FREE_LAG, 4) if preset == "quick" else (FREE_LAG, 16, 8, 4, 2, 1)
    return [arm for tail, sigma in TAILS.items() for arm in _ways(tail, 32, PAPER.with_tail(sigma), lags)]


def _scaling(preset: Preset) -> list[Arm]:
    costs = PAPER.with_tail(TAILS["plain"])
    return [arm for phones in (8, 32, 128, 512) for arm in _ways(f"{phones} phones", phones, costs, (FREE_LAG,))]


def _learning(preset: Preset) -> list[Arm]:
    """Three of the paper's: its own, and DigiRL on the same asynchronous fleet and on several machines in step."""
    costs = PAPER.with_tail(TAILS["plain"])
    sets = ("algorithm.minibatches=32", *(() if preset == "full" else ("evaluate.episodes=96",)))
    ways = {"a-ride/async": ("aride", FREE_LAG), "digirl/async": ("digirl", FREE_LAG), "digirl/sync": ("digirl", 0)}
    return [  # one trajectory for each minibatch, as by default
        Arm(name, 32, costs, (f"algorithm.type={kind}", f"feeder.max_lag={lag}", *sets), "home", learns=True)
        for name, (kind, lag) in ways.items()
    ]


SCRIPTED: Final = (
    "The imperfect script of the demonstrations acts on the suite `general`, and updates take their time and compute "
    "nothing: pace does not depend on what is learned. An update folds as many trajectories as there are phones."
)

EXPERIMENTS: Final[Mapping[str, Experiment]] = MappingProxyType(
    {
        each.name: each
        for each in (
            Experiment(
                "collection",
                "Trajectories by the hour of 32 phones, asynchronous and synchronous (the paper's figure 6c)",
                SCRIPTED,
                _collection,
                MappingProxyType({"quick": 6000.0, "full": 24_000.0}),
            ),
            Experiment(
                "scaling",
                "Trajectories by the hour of 8 to 512 phones, against phones that never wait (the paper's figure 6d)",
                SCRIPTED + " Each update takes the same time at every size: a larger fleet's learner is taken to be as "
                "much faster, which docs/scale.md computes.",
                _scaling,
                MappingProxyType({"quick": 3000.0, "full": 12_000.0}),
            ),
            Experiment(
                "learning-curves",
                "Success over time and over trajectories, 32 phones (the paper's figure 6a and 6b)",
                "The shipped base model, the suite `home`, 128 demonstrations; each arm of a seed begins with the same "
                "version 0. Curves are greedy episodes on tasks of validation, the ends on held-out ones.",
                _learning,
                MappingProxyType({"quick": 3600.0, "full": 24_000.0}),
                "success_last",
            ),
        )
    }
)


def experiment_of(name: str) -> Experiment:
    """Raises ConfigError for a name that is none."""
    if name not in EXPERIMENTS:
        raise ConfigError("experiment", f"{name} is none of {', '.join(EXPERIMENTS)}", "`distrl experiment --list`")
    return EXPERIMENTS[name]


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds as `0,1,2`. Raises ConfigError for another form, and for a seed that is named twice."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise ConfigError("--seeds", f"{text!r} names no seeds", "name each once, like 0,1,2")
    return found
