"""Points as lines of JSON, which pandas, DuckDB and jq read: what is tracked where no library is wanted."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from distrl.errors import ConfigError
from distrl.files import write
from distrl.trackers.protocol import Point, TrackedRun

POINTS: Final = "points.jsonl"
SETTINGS: Final = "settings.json"


class Files:
    """One line each: {"axis", "step", "at", "source", and the figures by their names}.

    `start` raises ConfigError where lines that were written are gone.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._out: BinaryIO | None = None

    def start(self, run: TrackedRun, logged: int) -> None:
        about = {"run": run.name, "began": run.began, "settings": dict(run.settings)}
        write(self._folder / SETTINGS, (json.dumps(about, indent=1, sort_keys=True) + "\n").encode())
        path = self._folder / POINTS
        path.touch()
        with path.open("r+b") as out:
            kept = [len(line) for line, _ in zip(out, range(logged), strict=False)]
            if len(kept) < logged:
                raise ConfigError(
                    "--out",
                    f"{path} has {len(kept)} lines, and {logged} points were logged before",
                    "put the file back, or name another --out to log all of them again",
                )
            out.truncate(sum(kept))
        self._out = path.open("ab")

    def log(self, points: Sequence[Point]) -> None:
        assert self._out is not None, "it was started"
        for point in points:
            line = {"axis": point.axis.value, "step": point.step, "at": point.at, "source": point.source}
            self._out.write(json.dumps(line | dict(point.values)).encode() + b"\n")
        self._out.flush()
        os.fsync(self._out.fileno())

    def finish(self) -> None:
        if self._out is not None:
            self._out.close()
