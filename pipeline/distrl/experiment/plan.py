"""What an experiment is: arms under seeds for a length of virtual time, and how they are compared. Pure.

`distrl.experiment.catalogue` has those that there are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from distrl.config import Config, load
from distrl.errors import ConfigError
from distrl.evaluate.failures import Mode
from distrl.experiment.costs import CostModel
from distrl.types import Split

Preset = Literal["quick", "full"]
Against = Literal["the synchronous one", "the first", "each other"]
"""With which arms of its group an arm is compared."""
FORMAT: Final = 2
"""Raised whenever the same arm and seed would give other figures: cells that are on disk are then made again."""
PACE: Final = (
    "per_hour", "bound_per_hour", "share_of_bound", "own_time_share", "mean_lag", "max_lag", "episode_own_s",
)  # fmt: skip
"""Figures of how fast trajectories come (`distrl.experiment.measure`)."""
MODES: Final = tuple(mode.value for mode in Mode)
"""Figures of how held-out tasks failed, as shares of all."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of running the system. sets: its settings, as path=value."""

    name: str
    phones: int
    costs: CostModel
    sets: tuple[str, ...]
    group: str = ""
    """Arms are compared within their group."""
    learns: bool = False
    """Whether the policy acts and updates compute; else a script acts, and they take their time alone."""
    curve: Split = Split.VALIDATION
    """Where it learns: the tasks that its versions play over time. The first and the last also play held-out ones."""

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
            "arm": [self.arm.name, self.arm.phones, self.arm.sets, self.arm.costs.to_dict()],
            "learns": self.arm.curve.value if self.arm.learns else None,
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
    """The figure by which arms are compared; the higher the better."""
    against: Against = "the synchronous one"
    shown: Sequence[str] = PACE
    """The figures of its tables; report.json has them all."""

    def cells(self, preset: Preset, seeds: Sequence[int]) -> list[Cell]:
        return [Cell(arm, seed, self.until[preset]) for arm in self.arms(preset) for seed in seeds]


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds as `0,1,2`. Raises ConfigError for another form, and for a seed that is named twice."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise ConfigError("--seeds", f"{text!r} names no seeds", "name each once, like 0,1,2")
    return found
