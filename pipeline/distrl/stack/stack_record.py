"""stack.json: which parts of a stack are up and where. Written by `distrl up`, read by every other command.

It holds no secret. A part counts as up only while its process runs, so a stale record does no harm.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distrl.stack.part import Part
from distrl.stack.processes import find

FILE = "stack.json"


class Record:
    """The parts of the stack in `directory`. Only the holder of its lock writes it, from several threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / FILE
        self._lock = threading.Lock()

    def parts(self) -> dict[str, Part]:
        """The parts that are up, by name."""
        kept = ((name, self._part(name, raw)) for name, raw in self._read().items())
        return {name: part for name, part in kept if part is not None}

    def has(self, name: str) -> bool:
        """Whether a part was put and not removed, be it up or not."""
        return name in self._read()

    def put(self, part: Part) -> None:
        with self._lock:
            entry = {"where": part.where, "settings": dict(part.settings), "process": part.child is not None}
            if part.started_by:
                entry["started_by"] = part.started_by
            self._write({**self._read(), part.name: entry})

    def remove(self, *names: str) -> None:
        """All at once: where none is left nothing is written, which a full disk would refuse."""
        with self._lock:
            left = {other: raw for other, raw in self._read().items() if other not in names}
            if left:
                self._write(left)
            else:
                self._file.unlink(missing_ok=True)

    def _part(self, name: str, raw: Mapping[str, Any]) -> Part | None:
        try:
            child = find(self._directory, name) if raw["process"] else None
            if raw["process"] and child is None:
                return None
            return Part(name, str(raw["where"]), dict(raw["settings"]), child, str(raw.get("started_by", "")))
        except (KeyError, TypeError, ValueError):
            return None

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._file.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return kept if isinstance(kept, dict) else {}

    def _write(self, entries: Mapping[str, Any]) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_suffix(".json.new")
        beside.write_text(json.dumps(entries, indent=2, sort_keys=True))
        beside.replace(self._file)
