"""The declarations of `infra/`: in the repository, or beside the installed code."""

from __future__ import annotations

from pathlib import Path

from distrl.errors import StackError
from distrl.shipped import shipped_folder


def infra_folder() -> Path:
    """`distrl/infra` beside the installed code, or `infra` at the top of a checkout. Raises StackError without both."""
    return shipped_folder("infra", StackError)


def declared(path: str) -> str:
    """The text of `infra/<path>`."""
    return (infra_folder() / path).read_text(encoding="utf-8")
