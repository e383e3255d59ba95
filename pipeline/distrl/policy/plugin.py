"""The code of a package that brings a family of policies: what names it, so that an edit shows where it may matter.

What such a package imports of other ones is not in, nor what of it is no Python source.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points, packages_distributions, version
from pathlib import Path
from typing import Final

from distrl.config import PolicySettings
from distrl.policy.registry import GROUP, package_of

OURS: Final = __name__.partition(".")[0]
SHOWN: Final = 12
"""Hex digits of a digest in what names a package."""


def plugin_code(policy: PolicySettings) -> str | None:
    """What names the code of the package that brings the family of the base model; None where that is DistRL's own.
    Raises PolicyError where the base model cannot be read."""
    package = package_of(policy)
    return None if package == OURS else named_code(package)


def named_code(package: str) -> str:
    """The distributions of a package with their versions, and a digest of its sources."""
    # both, as the list of a distribution that is installed as editable has no packages
    families = [each for each in entry_points(group=GROUP) if each.module.partition(".")[0] == package]
    names = {each.dist.name for each in families if each.dist}
    names.update(packages_distributions().get(package, ()))
    versions = [f"{name} {version(name)}" for name in sorted(names)]
    return f"{', '.join(versions or [package])} (sources {sources_sha256(package)[:SHOWN]})"


@cache
def sources_sha256(*packages: str) -> str:
    """sha256 (hex) over the sources of these packages. They are read once: a process goes on with what it imported,
    whatever becomes of the files."""
    total = hashlib.sha256()
    for package in map(import_module, packages):
        for root in map(Path, getattr(package, "__path__", [package.__file__])):
            for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
                total.update(f"{root.name}/{file.relative_to(root)}\n".encode())
                total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()
