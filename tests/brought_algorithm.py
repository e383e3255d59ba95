"""A package that brings an algorithm, as a user's own would be installed: the files that docs/learning.md shows."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import brought
import pytest

NAME = "users_awr"
TYPE = f"{NAME}.awr"
PAGE = Path(__file__).parents[1] / "docs" / "learning.md"


@cache
def shown() -> dict[str, str]:
    """The files of the page, by their names: its blocks of code that begin with one."""
    return dict(re.findall(r"^```\w+\n# ([\w/.]+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL))


def install(site: Path, version: str = "1") -> Path:
    """A folder that, on sys.path, offers the algorithm."""
    files = {name: text for name, text in shown().items() if name.startswith(f"{NAME}/")}
    points = tomllib.loads(shown()["pyproject.toml"])["project"]["entry-points"]
    return brought.write(site, NAME, {f"{NAME}/__init__.py": "", **files}, points, version)


def edit(site: Path, old: str, new: str, file: str = "algorithm.py") -> None:
    """`new` in the place of `old`, which is there once."""
    place = site / NAME / file
    text = place.read_text()
    assert text.count(old) == 1
    place.write_text(text.replace(old, new))


def use(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process find the package in `site` as the next process would."""
    brought.use(site, monkeypatch, NAME)
