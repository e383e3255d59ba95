"""Weights & Biases. Nothing leaves the machine unless WANDB_MODE says so; `wandb sync` sends it later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import wandb

from distrl.trackers.protocol import GROUPS, Axis, Point, TrackedRun

MODE: Final = "WANDB_MODE"
OFFLINE: Final[Literal["offline"]] = "offline"


class WeightsAndBiases:
    """One run there for one of ours, under one id. Its own step is the number of the point, so that a server takes one
    that is sent again for the one that it has; charts are over updates and versions."""

    def __init__(self, folder: Path, project: str) -> None:
        self._folder, self._project = folder, project
        self._run: wandb.Run | None = None
        self._logged = 0

    def start(self, run: TrackedRun, logged: int) -> None:
        self._logged = logged
        self._run = wandb.init(
            project=self._project,
            id=run.id,
            name=run.name,
            dir=str(self._folder),
            resume="allow",
            config=dict(run.settings),
            mode=None if os.environ.get(MODE) else OFFLINE,
            settings=wandb.Settings(
                console="off",
                quiet=True,
                x_disable_stats=True,
                x_disable_meta=True,  # it holds the command line, where a secret may be given
                x_disable_machine_info=True,
                x_save_requirements=False,
                disable_git=True,
                disable_code=True,
            ),
        )
        for axis in Axis:
            self._run.define_metric(axis.value, hidden=True)
        for group, axis in GROUPS.items():
            self._run.define_metric(f"{group}/*", step_metric=axis.value)

    def log(self, points: Sequence[Point]) -> None:
        assert self._run is not None, "it was started"
        for point in points:
            self._run.log({**point.values, point.axis.value: point.step, "at": point.at / 1000}, step=self._logged)
            self._logged += 1

    def finish(self) -> None:
        if self._run is not None:
            self._run.finish()
            wandb.teardown()  # waits for its process, which may be writing the file still
