"""The declarations of `infra/`: in the repository, or beside the installed code."""

from __future__ import annotations

from pathlib import Path

from distrl.errors import StackError


def infra_folder() -> Path:
    """`distrl/infra` beside the installed code, or `infra` at the top of a checkout. Raises StackError without both."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "infra", package.parents[1] / "infra"):
        if folder.is_dir():
            return folder
    raise StackError("infra", f"no declarations beside {package}", "reinstall distrl (pip install --force-reinstall)")


def declared(path: str) -> str:
    """The text of `infra/<path>`."""
    return (infra_folder() / path).read_text(encoding="utf-8")
