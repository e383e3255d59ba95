"""Weights & Biases. Nothing leaves the machine unless WANDB_MODE says so; `wandb sync` sends it later."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

import wandb

from distrl.trackers.protocol import GROUPS, Axis, Point, TrackedRun
from distrl.trackers.wandb_file import WandbFile

MODE: Final = "WANDB_MODE"
OFFLINE: Final[Literal["offline"]] = "offline"
FLUSH_S: Final = 0.05
"""Between two writes of the service that holds the rows. Its own 15 s, or 32 KiB, would be lost with it."""
LOOK_S: Final = 0.01
"""Between two looks into its file."""
WRITTEN_S: Final = 60.0
"""Until its file has the rows. Past this wait the service is gone, or its disk is full."""


class WeightsAndBiases:
    """One W&B run for each run of ours, with the same id. W&B's step is the number of the point, so that a server
    recognises a point that is sent again; charts are drawn over updates and versions."""

    def __init__(self, folder: Path, project: str) -> None:
        self._folder, self._project = folder, project
        self._run: wandb.Run | None = None
        self._logged = 0
        self._file: WandbFile | None = None
        """None where nothing is written, as in WANDB_MODE=disabled."""

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
                x_transaction_log_flush_interval=FLUSH_S,
                x_skip_transaction_log=False,
            ),
        )
        self._file = None if self._run.disabled else WandbFile(Path(self._run.settings.sync_file))
        for axis in Axis:
            self._run.define_metric(axis.value, hidden=True)
        for group, axis in GROUPS.items():
            self._run.define_metric(f"{group}/*", step_metric=axis.value)

    def log(self, points: Sequence[Point]) -> None:
        assert self._run is not None, "it was started"
        for point in points:
            row = {**point.values, point.axis.value: point.step, "at": point.at / 1000}
            # Without `commit` the package holds a row until the next step comes.
            self._run.log(row, step=self._logged, commit=True)
            self._logged += 1
        if points and self._logged > self._run.starting_step:  # a server that has these rows takes none again
            self._wait_written(self._logged - 1)

    def _wait_written(self, step: int) -> None:
        """Return when the run's file has the row of `step`. Raises TimeoutError."""
        until = time.monotonic() + WRITTEN_S
        while self._file is not None and self._file.last_step() < step:
            if time.monotonic() > until:
                raise TimeoutError(f"W&B's service has not written row {step} in {WRITTEN_S:.0f} s")
            time.sleep(LOOK_S)

    def finish(self) -> None:
        if self._run is not None:
            self._run.finish()
            wandb.teardown()  # waits for its process, which may be writing the file still
