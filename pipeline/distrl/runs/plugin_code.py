"""The code of other packages that a run depends on: of what brings its policy, and of what brings its algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from distrl.config import Config, algorithm_plugins
from distrl.plugins import OURS, named_code, sha256_by_file
from distrl.policy.registry import package_of

PACKAGES: Final[Mapping[str, Callable[[Config], str]]] = {
    "plugin.policy": lambda config: package_of(config.policy),
    "plugin.algorithm": lambda config: algorithm_plugins.package_of(config.algorithm),
}
"""Path under which a run's log has the code -> the package, by its name at import. None of them is a setting."""
SETTING: Final = {"plugin.policy": "policy.base_model", "plugin.algorithm": "algorithm.type"}
"""The setting that decides which package it is."""


def what(path: str) -> str:
    """What the code of a path is of: "policy" or "algorithm"."""
    return path.partition(".")[2]


def packages(config: Config) -> dict[str, str]:
    """Path -> package, without DistRL's own. Raises PolicyError where the base model cannot be read, and where two
    packages bring the policy; ConfigError where two bring the algorithm."""
    found = {path: of(config) for path, of in PACKAGES.items()}
    return {path: package for path, package in found.items() if package != OURS}


def plugin_code(config: Config) -> dict[str, str]:
    """Path -> what names the code of the package; empty where all of it is DistRL's own. Raises as `packages`."""
    return {path: named_code(package) for path, package in packages(config).items()}


def plugin_files(config: Config, path: str) -> dict[str, str]:
    """The files behind `plugin_code(config)[path]`, each with its sha256 (hex); none where it is DistRL's own."""
    package = packages(config).get(path)
    return {} if package is None else sha256_by_file(package)
