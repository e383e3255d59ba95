"""A package that brings a family of policies, as a user's own would be installed: real files, which a test edits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import byte_policy
import pytest
from distrl.plugins import files_sha256

NAME = "users_family"


def install(site: Path, version: str = "1") -> Path:
    """A folder that, on sys.path, offers the family of `byte_policy` from a package of its own."""
    files = {f"{NAME}/__init__.py": "", f"{NAME}/family.py": "from byte_policy import FAMILY\n"}
    return write(site, NAME, files, {"distrl.policies": {byte_policy.FORMAT: f"{NAME}.family:FAMILY"}}, version)


def write(
    site: Path, name: str, files: Mapping[str, str], points: Mapping[str, Mapping[str, str]], version: str = "1"
) -> Path:
    """A distribution in `site`, with these files and entry points by group and name."""
    about = site / f"{name}-{version}.dist-info"
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in of.items()) for group, of in points.items()
    ]
    metadata = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
    metadata["entry_points.txt"] = "".join(groups)
    for place, text in {**files, **{f"{about.name}/{key}": text for key, text in metadata.items()}}.items():
        (site / place).parent.mkdir(parents=True, exist_ok=True)
        (site / place).write_text(text)
    return site


def list_files(site: Path, *files: str) -> None:
    """Have the distribution list these files, by their place in `site`, as an installer does that copied them."""
    (about,) = site.glob("*.dist-info")
    (about / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{about.name}/METADATA")))


def edit(site: Path) -> None:
    """Another line in its code, under the same version."""
    with (site / NAME / "family.py").open("a") as file:
        file.write("SCALE = 2\n")


def use(site: Path, monkeypatch: pytest.MonkeyPatch, package: str = NAME) -> None:
    """Have this process find the package in `site` as the next process would."""
    monkeypatch.syspath_prepend(str(site))
    for name in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
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
