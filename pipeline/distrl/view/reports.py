"""The reports of `distrl ablate` and `distrl experiment` that lie in some folders: found, read, and distinguished.

A file that cannot be read is listed with the reason. Nothing of a file that is no report is shown.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import msgspec

from distrl.errors import WireError
from distrl.view.answers import NotThereError
from distrl.view.report_ablation import ablation_form
from distrl.view.report_experiment import experiment_form
from distrl.view.report_form import ReportForm

FILE: Final = "report.json"
PLACES: Final = (FILE, f"*/{FILE}", f"*/*/{FILE}")
"""Where a report may be in a given folder."""
MOST_REPORTS: Final = 500
"""Most reports in the list, the first by name."""
MOST_BYTES: Final = 64 * 2**20
"""Most bytes of one report: that of hundreds of arms has tens of MB, and decoded it takes several times that in
memory."""
OF_AN_ABLATION: Final = b'"baseline_is_the_run"'
"""A field that no report of an experiment has."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    id: str
    """Hexadecimal, of its name: for addresses, and names of files."""
    name: str
    """As a person knows it: its folder, from the named one on."""
    path: Path
    stamp: tuple[int, ...]
    """Differs where the file was written or replaced."""


class Reports:
    """folders: those that are named; one that is not there has no report."""

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self._folders = tuple(folders)
        self._rows: dict[ReportFile, dict[str, Any]] = {}
        """Of the files as they were when they were listed last."""
        self._turn = threading.Lock()

    def all(self) -> list[dict[str, Any]]:
        """A row for each, by name: what it is, or why it cannot be read. A file is read again once it has changed."""
        with self._turn:
            known = self._rows
            self._rows = {file: known.get(file) or _row(file) for file in self._files()}
            return list(self._rows.values())

    def get(self, report: str) -> msgspec.Raw:
        """One, as its page shows it, in JSON. Raises NotThereError, and WireError where it cannot be read or shown."""
        for file in self._files():
            if file.id == report:
                found = read(file.path)
                shown = {each.name: getattr(found, each.name) for each in fields(found)}
                with _refused(file.path):
                    return msgspec.Raw(msgspec.json.encode({"id": file.id, "name": file.name, **shown}))
        raise NotThereError("report", "there is no such report any more", "see the list of reports")

    def _files(self) -> list[ReportFile]:
        found = {each.id: each for number, folder in enumerate(self._folders) for each in _files(number, folder)}
        return sorted(found.values(), key=lambda each: (each.name, each.id))[:MOST_REPORTS]


def read(path: Path) -> ReportForm:
    """Raises WireError, which says what is wrong with the file."""
    with _refused(path):
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES // 2**20} MB")
        content.decode()  # parts of it are shown as they are
        return ablation_form(content) if OF_AN_ABLATION in content else experiment_form(content)


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """Raises WireError for what a file that is no report may cause."""
    try:
        yield
    except (OSError, ValueError, ArithmeticError, RecursionError) as error:
        what = error.strerror if isinstance(error, OSError) else str(error)
        raise WireError(
            f"{_text(path.parent.name)}/{FILE}",
            f"is no report that can be shown ({what})",
            "if the command was interrupted, give it again: it writes the whole report",
        ) from error


def _row(file: ReportFile) -> dict[str, Any]:
    named = {"id": file.id, "name": file.name}
    try:
        found = read(file.path)
    except WireError as error:
        problem = {"error": f"{error.where}: {error.what}", "fix": error.hint}
        return {**named, "kind": None, "title": file.name, "complete": None, "arms": None, "problem": problem}
    shown = {name: getattr(found, name) for name in ("kind", "title", "complete", "arms")}
    return {**named, **shown, "problem": None}


def _files(number: int, folder: Path) -> Iterator[ReportFile]:
    """number: of the folder among those named, as two may have the same name."""
    for place in PLACES:
        for path in folder.glob(place):
            if (stamp := _stamp(path)) is not None:
                inside = path.parent.relative_to(folder).as_posix()
                name = f"{folder.resolve().name}/{inside}".removesuffix("/.")
                digest = hashlib.sha256(os.fsencode(f"{number}:{name}")).hexdigest()
                yield ReportFile(digest[:16], _text(name), path, stamp)


def _stamp(path: Path) -> tuple[int, ...] | None:
    """None for what is no file: a pipe would be read for ever."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size) if stat.S_ISREG(found.st_mode) else None


def _text(name: str) -> str:
    """A file's name may hold bytes that are no text."""
    return os.fsencode(name).decode(errors="replace")
