"""What an experiment took, by which code and on what: files of their own, as a report is a function of its command.

A cell's is in OUT/spent as soon as it is done; `cost.json` has the sum, also over several calls of the command.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from distrl.files import write

FOLDER: Final = "spent"
FILE: Final = "cost.json"
DIRTY: Final = "-dirty"
"""Ends the name of a commit from which files differ."""
UNKNOWN: Final = "that nobody noted"
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Spent:
    """processor_s: seconds of processor time of one process, over all of its threads. code: a commit or a release,
    after those of the packages that bring its policies or algorithms (`cells.code_of`). format: `plan.FORMAT` of that
    code. processor: on which it ran. Both are None where an earlier release noted neither."""

    processor_s: float
    code: str
    format: int | None = None
    processor: str | None = None


def timed(compute: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> tuple[R, float]:
    """What `compute` returns, and the processor seconds of this process that it took."""
    begin = time.process_time()
    return compute(*args, **kwargs), time.process_time() - begin


def code_version() -> str:
    """The commit that the package is of, with DIRTY where files differ from it; else the version of the package."""
    here = Path(__file__)
    try:
        # An installed package may lie in another repository, which ignores it.
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        return _git(here.parent, "describe", "--always", f"--dirty={DIRTY}", "--abbrev=12", "--exclude=*").strip()
    except (OSError, subprocess.SubprocessError):
        return f"distrl {version('distrl')}"


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout


def note(out: Path, name: str, spent: Spent) -> None:
    write(out / FOLDER / name, _bytes(asdict(spent)))


def total(out: Path, names: Sequence[str]) -> dict[str, Any]:
    """The sum over the cells and warm-ups with these file names. unknown: how many of them have no file."""
    found = [each for name in names if (each := _noted(out / FOLDER / name)) is not None]
    return {
        "processor_s": round(sum(each.processor_s for each in found), 1),
        "code": sorted({each.code for each in found}),
        "format": sorted({each.format for each in found if each.format is not None}),
        "processor": sorted({each.processor for each in found if each.processor is not None}),
        "parts": len(found),
        "unknown": len(names) - len(found),
    }


def write_total(out: Path, names: Sequence[str]) -> None:
    write(out / FILE, _bytes(total(out, names)))


def by_other_code(out: Path, names: Sequence[str], code: str) -> dict[str, int]:
    """How many of the parts with these file names were made by other code than `code`; by that code. Code with
    uncommitted changes counts as other code, as its changes may have been others; a part without a file is made by
    UNKNOWN code."""
    noted = [_noted(out / FOLDER / name) for name in names]
    found = [UNKNOWN if each is None else each.code for each in noted]
    return dict(sorted(Counter(each for each in found if each != code or each.endswith(DIRTY)).items()))


def _noted(file: Path) -> Spent | None:
    """None where there is no such file, or a damaged one."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Spent)
    except (OSError, ValueError, RecursionError):  # msgspec's own errors are ValueErrors
        return None


def _bytes(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
