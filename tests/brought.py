"""A package that brings a family of policies, as a user's own would be installed: real files, which a test edits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import byte_policy
import pytest
from distrl.policy.plugin import files_sha256

NAME = "users_family"


def install(site: Path, version: str = "1") -> Path:
    """A folder that, on sys.path, offers the family of `byte_policy` from a package of its own."""
    package, about = site / NAME, site / f"{NAME}-{version}.dist-info"
    for folder in (package, about):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "family.py").write_text("from byte_policy import FAMILY\n")
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n")
    (about / "entry_points.txt").write_text(f"[distrl.policies]\n{byte_policy.FORMAT} = {NAME}.family:FAMILY\n")
    return site


def list_files(site: Path, *files: str) -> None:
    """Have the distribution list these files, by their place in `site`, as an installer does that copied them."""
    (about,) = site.glob("*.dist-info")
    (about / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{about.name}/METADATA")))


def edit(site: Path) -> None:
    """Another line in its code, under the same version."""
    with (site / NAME / "family.py").open("a") as file:
        file.write("SCALE = 2\n")


def use(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have this process find the package in `site` as the next process would."""
    monkeypatch.syspath_prepend(str(site))
    for name in (NAME, f"{NAME}.family"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    files_sha256.cache_clear()


def in_another_process(site: Path, code: str) -> str:
    """What `code` prints where the package in `site` is installed."""
    paths = (site, Path(byte_policy.__file__).parent, os.environ.get("PYTHONPATH", ""))
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
