"""Where the folders are that ship beside the code: within the installed package, or at the top of a checkout."""

from __future__ import annotations

from pathlib import Path

from distrl.errors import DistrlError


def shipped_folder(name: str, error: type[DistrlError]) -> Path:
    """`distrl/NAME` beside the installed code, or NAME at the top of a checkout. Raises `error` without both."""
    package = Path(__file__).resolve().parent
    for folder in (package / name, package.parents[1] / name):
        if folder.is_dir():
            return folder
    raise error(
        name,
        f"no such folder beside {package}",
        f"put that folder of the checkout back (`git checkout {name}`), or install distrl again from a whole checkout",
    )
