"""What an experiment is: arms under seeds for a length of virtual time, and how they are compared.

`distrl.experiment.catalogue` lists them. This module reads only the base model, to identify it, and the kind of
processor."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from distrl.config import Config, load
from distrl.errors import ConfigError
from distrl.evaluate.failures import Mode
from distrl.experiment.costs import CostModel
from distrl.experiment.novelty import Novelty
from distrl.policy.registry import base_sha256
from distrl.processor import processor_and_packages
from distrl.types import Split

Preset = Literal["quick", "full"]
PRESETS: Final[tuple[Preset, ...]] = ("quick", "full")
Against = Literal["the synchronous one", "the first", "each other"]
"""Which arms of its group an arm is compared with."""
FORMAT: Final = 5
"""Raised whenever the same arm and seed would give other figures: cells that are on disk are then made again."""
PACE: Final = (
    "per_hour", "bound_per_hour", "share_of_bound", "own_time_share", "mean_lag", "max_lag", "episode_own_s",
)  # fmt: skip
"""Figures of how fast trajectories come (`distrl.experiment.measure`)."""
MODES: Final = tuple(mode.value for mode in Mode)
"""Figures of how held-out tasks failed, as shares of all."""


@dataclass(frozen=True, slots=True)
class Play:
    """Tasks that versions play greedily: those of a split of some suites, on phones of one look.

    name: of its figure. suites: built-in ones; the arm's own if empty. novelty: only the tasks that are so new to an
    agent of the arm's suite; all if None.
    """

    name: str
    suites: tuple[str, ...] = ()
    split: Split = Split.TEST
    generation: int = 0
    novelty: Novelty | None = None


HELD_OUT: Final = Play("held out")


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
    """Where it learns: the tasks that its versions play over time."""
    points: int = 6
    """How many times they do so after version 0, at equal intervals."""
    held_out: Play = HELD_OUT
    """What its first and its last version play; arms of a group are compared by it, task by task."""
    plays: tuple[Play, ...] = ()
    """What its last version plays, too; each is a figure."""
    until: float | None = None
    """Virtual seconds, where they are not those of the experiment."""
    recurrent: bool = False
    """Whether a recurrent Q over the base model acts and learns in its place."""

    def config(self, seed: int) -> Config:
        """The settings; neither a file nor a variable of the machine changes them, nor a GPU that is there: an
        experiment that goes on elsewhere would else compare weights of two kinds of processor (ADR 22)."""
        each_update = f"learner.trajectories_per_update={self.phones}"
        base = ("run=experiment", f"learner.seed={seed}", "learner.device=cpu", each_update)
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
    base_model: Path | None = None
    """Directory of the base model where arms learn; the shipped one if None."""

    @property
    def config(self) -> Config:
        config = self.arm.config(self.seed)
        if self.base_model is None:
            return config
        return config.model_copy(update={"policy": config.policy.model_copy(update={"base_model": self.base_model})})

    @property
    def fingerprint(self) -> str:
        """sha256 (hex) of all that its figures depend on, but the code. Raises PolicyError where the base model cannot
        be read."""
        content = {
            "format": FORMAT,
            "seed": self.seed,
            "until": self.until,
            "arm": [self.arm.name, self.arm.phones, self.arm.sets, self.arm.costs.to_dict()],
            "learns": self._learning if self.arm.learns else None,
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def _learning(self) -> list[Any]:
        arm = self.arm
        plays = [asdict(play) for play in (arm.held_out, *arm.plays)]
        base, machine = base_sha256(self.config.policy), processor_and_packages()
        return [arm.curve.value, arm.points, plays, arm.recurrent, base, machine]

    @property
    def file(self) -> str:
        return f"{self.arm.name.replace('/', '-').replace(' ', '-')}-seed-{self.seed}.json"


@dataclass(frozen=True, slots=True)
class Experiment:
    """title: what it answers. about: what a reader must know about how it is run."""

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

    def cells(
        self, preset: Preset, seeds: Sequence[int], base_model: Path | None = None, only: Sequence[str] = ()
    ) -> list[Cell]:
        """The cells, with the seeds of an arm one after the other. only: names of arms, in any order; all arms if
        empty. Raises ConfigError for an unknown name."""
        arms = self.arms(preset)
        names = [arm.name for arm in arms]
        if unknown := [name for name in only if name not in names]:
            hint = f"name some of: {'; '.join(names)}"
            raise ConfigError("--arm", f"{self.name} has no arm {unknown[0]!r} in its preset {preset}", hint)
        return [
            Cell(arm, seed, self.until[preset] if arm.until is None else arm.until, base_model if arm.learns else None)
            for arm in arms
            if not only or arm.name in only
            for seed in seeds
        ]


def seeds_of(text: str) -> tuple[int, ...]:
    """Seeds as `0,1,2`. Raises ConfigError for another form, and for a seed that is named twice."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 0 or len(set(found)) < len(found):
        raise ConfigError("--seeds", f"{text!r} names no seeds", "name each once, like 0,1,2")
    return found
