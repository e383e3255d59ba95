"""The experiments that there are: which arms each has, and for how long. Pure.

An experiment is a declaration: its arms are names with settings, and what they are compared by is a figure of their
cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from distrl.errors import ConfigError
from distrl.experiment.catalogue.agents import AGENTS
from distrl.experiment.catalogue.learning import LEARNERS
from distrl.experiment.catalogue.pace import PACE
from distrl.experiment.catalogue.r2d3 import R2D3
from distrl.experiment.plan import Experiment

EXPERIMENTS: Final[Mapping[str, Experiment]] = MappingProxyType(
    {each.name: each for each in (*PACE, *LEARNERS, *AGENTS, R2D3)}
)


def experiment_of(name: str) -> Experiment:
    """Raises ConfigError for a name that is none."""
    if name not in EXPERIMENTS:
        raise ConfigError("experiment", f"{name} is none of {', '.join(EXPERIMENTS)}", "`distrl experiment --list`")
    return EXPERIMENTS[name]
