"""An experiment of seconds, as a program that can be killed: `python small.py OUT`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType

from distrl.experiment.costs import PAPER
from distrl.experiment.plan import Arm, Cell, Experiment, Preset
from distrl.experiment.report import Report
from distrl.experiment.run import run_experiment

SEEDS = (0, 1)


def arms(preset: Preset) -> list[Arm]:
    suite = "feeder.suite=home"
    return [
        Arm("few/async", 4, PAPER, (suite, "feeder.max_lag=32"), "few"),
        Arm("few/sync", 4, PAPER, (suite, "feeder.max_lag=0"), "few"),
    ]


SMALL = Experiment("small", "A small one", "For tests.", arms, MappingProxyType({"quick": 1500.0, "full": 1500.0}))


def run(out: Path, on_cell: Callable[[Cell], None] = lambda cell: None, only: Sequence[str] = ()) -> Report:
    return run_experiment(SMALL, "quick", SEEDS, out, on_cell, processes=1, only=only)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
