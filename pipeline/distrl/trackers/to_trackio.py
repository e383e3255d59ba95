"""Trackio, in its own database on this machine: nothing leaves it. `trackio show` draws it, `trackio sync` sends it.

Points go to Trackio's storage, as its importers write, and not through `trackio.init` and `log`: those write later from
a thread, turn errors into warnings, stamp each point with the present time and ask the hub who is logged in.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from distrl.errors import ConfigError
from distrl.trackers.protocol import Point, TrackedRun

PLACE: Final = "TRACKIO_DIR"
ELSEWHERE: Final = ("TRACKIO_BUCKET_ID", "TRACKIO_DATASET_ID")
"""Its storage would first fetch what these name from the hub."""
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime.max.replace(tzinfo=UTC) - EPOCH


class Trackio:
    """A point is a row with its own step, time and id, so that a point that is written again adds no row."""

    def __init__(self, folder: Path, project: str) -> None:
        """folder: where the database is, unless TRACKIO_DIR names a place. Raises ConfigError for a project that
        Trackio refuses, and where its database would be on a network's file system."""
        os.environ.setdefault(PLACE, str(folder.absolute()))
        for name in ELSEWHERE:
            os.environ.pop(name, None)
        from trackio import utils  # reads the place when it is imported
        from trackio.sqlite_storage import SQLiteStorage

        self._storage, self._project, self._place = SQLiteStorage, project, utils.TRACKIO_DIR
        try:
            self._storage.validate_project_name(project)
        except ValueError as error:
            raise ConfigError("--project", str(error), "choose another name") from None
        if utils.get_storage_mode() != "sqlite":
            raise ConfigError(
                PLACE,
                f"{self._place} is on a network's file system, where Trackio's database is not safe",
                "name a folder of a local disk (TRACKIO_DIR, or --out), or set TRACKIO_STORAGE_MODE=sqlite",
            )
        self._run: TrackedRun | None = None
        self._logged = 0

    def start(self, run: TrackedRun, logged: int) -> None:
        there = self._storage.get_log_count(self._project, run=run.name, run_id=run.id)
        if there < logged:
            raise ConfigError(
                str(self._place),
                f"project {self._project!r} has {there} of the {logged} points that were logged before",
                f"name the same --project and {PLACE} as then, or another --out to log all of them again",
            )
        self._run, self._logged = run, logged

    def log(self, points: Sequence[Point]) -> None:
        assert self._run is not None, "it was started"
        self._storage.bulk_log(
            self._project,
            self._run.name,
            [dict(each.values) for each in points],
            steps=[each.step for each in points],
            timestamps=[_when(each.at) for each in points],
            config=dict(self._run.settings),
            log_ids=[f"{self._run.id}/{self._logged + place}" for place in range(len(points))],
            run_id=self._run.id,
        )
        self._logged += len(points)

    def finish(self) -> None:
        """Every `log` has closed the database."""


def _when(ms: int) -> str:
    """As Trackio writes a time. A record's own may be any number."""
    since = timedelta(milliseconds=ms) if 0 <= ms <= LATEST // timedelta(milliseconds=1) else timedelta(0)
    return (EPOCH + since).isoformat()
