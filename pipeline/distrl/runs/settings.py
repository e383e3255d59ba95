"""A run's settings as values by path: which of them decide what is learned, and how those of a process differ."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from ipaddress import ip_address
from operator import getitem
from typing import Any
from urllib.parse import urlsplit

from distrl.config import LEARNING, Config
from distrl.config.allowed import written
from distrl.config.effects import UNSET
from distrl.errors import ConfigError
from distrl.policy.registry import base_sha256

ABSENT = object()
"""Value of a setting that one side's version of DistRL does not have."""

BASE_PATH, BASE_SHA256, ADAPTERS_PATH = "policy.base_model", "policy.base_model_sha256", "policy.adapters"
STORE = {"url", "region", "addressing"}
"""The settings of the section `store` that belong to a run: where a shared store is. Credentials are each machine's
own."""
NOT_SETTINGS = (BASE_SHA256, ADAPTERS_PATH)
"""Compared like settings, although nobody can set them."""

ADAPTERS = "peft"
"""File format of adapters. A run has one, since versions and checkpoints are compared by their bytes."""

Settings = Mapping[str, Any]
"""Path of a setting, as in `config show`, -> JSON-able value."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A setting with another value than the run has."""

    path: str
    """As in `config show`, like learner.seed."""
    run: Any
    """The run's value; ABSENT where it has no such setting."""
    here: Any
    """Our value; ABSENT where we have no such setting."""

    def __str__(self) -> str:
        return f"{self.path} is {_shown(self.here)} here and {_shown(self.run)} there"


def learning_settings(config: Config, base: str | None = None) -> dict[str, Any]:
    """The settings that the fold reads, by section and name, JSON-able, with the sha256 of the base model.

    base: that sha256, of a model that is loaded; None: of its files as they are now. policy.base_model_sha256
    identifies the base model; its path (policy.base_model) is shown to people only. Raises PolicyError where the base
    model cannot be read.
    """
    found = config.learning_settings()
    found["policy"] |= {"base_model_sha256": base or base_sha256(config.policy), "adapters": ADAPTERS}
    return found


def learning_fingerprint(config: Config, base: str | None = None) -> str:
    """sha256 (hex) of the learning settings: with equal ones, equal logs give equal weights. base: as in
    `learning_settings`. Raises PolicyError."""
    found = learning_settings(config, base)
    del found["policy"]["base_model"]  # a path: the same model may have moved; its sha256 is in
    for path, before in before_values(config).items():
        names = path.split(".")
        if reduce(getitem, names, found) == before:
            _delete(found, names)
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def before_values(config: Config) -> dict[str, Any]:
    """Path -> the value that runs which were begun before the setting existed are taken to have (Effect.before)."""
    return {path: each.before for path, each in config.effects().items() if each.learned and each.before is not UNSET}


def run_settings(config: Config) -> dict[str, Any]:
    """Every setting that belongs to the run, by path, with what identifies its base model and its adapters.

    It has no credentials, and no address, name or path of a single machine or process; it names the store if other
    machines can reach it. Raises PolicyError where the base model is unreadable.
    """
    return {**shared_settings(config), BASE_SHA256: base_sha256(config.policy), ADAPTERS_PATH: ADAPTERS}


def shared_settings(config: Config) -> dict[str, Any]:
    """`run_settings` without NOT_SETTINGS."""
    named = {} if _is_on_this_machine(config.store.url) else config.store.model_dump(mode="json", include=STORE)
    base = config.policy.base_model
    # absolute, as processes that take it from the log run in other directories
    whole = {BASE_PATH: str(base.absolute())} if base is not None and base.exists() else {}
    return {
        **config.shared(),
        **whole,
        **{f"store.{name}": value for name, value in named.items()},
    }


def differences(run: Settings, here: Settings) -> list[Difference]:
    """The settings that differ, sorted by path. Empty if `run` is empty, as its settings are then unknown. Pure."""
    if not run:
        return []
    both = {path: (run.get(path, ABSENT), here.get(path, ABSENT)) for path in sorted(run.keys() | here.keys())}
    found = [Difference(path, then, now) for path, (then, now) in both.items() if then != now]
    changed = {each.path for each in found}
    # Of the base model, show neither path nor sha256 if it has only moved, and else the path, which says more.
    hidden = BASE_PATH if run.get(BASE_SHA256) == here.get(BASE_SHA256) else BASE_SHA256
    return [each for each in found if each.path != hidden or {BASE_PATH, BASE_SHA256} - changed == {BASE_PATH}]


def learned(found: list[Difference], config: Config) -> list[Difference]:
    """The differences that change what is learned. Pure."""
    effects = config.effects()
    return [
        each
        for each in found
        if each.path.partition(".")[0] in LEARNING and (each.path not in effects or effects[each.path].learned)
    ]


def other_settings(found: list[Difference], what: str, run: str) -> ConfigError:
    """The error for learning settings that `what` of `run` was not made with. found: at least one. Pure."""
    given = [each for each in found if each.run is not ABSENT and each.path not in NOT_SETTINGS]
    flags = " ".join(_flag(each) for each in given)
    go_on = f"go on with {flags}" if flags else "use the version of DistRL that the run was made with"
    return ConfigError(
        ", ".join(each.path for each in found),
        f"{what} of run {run} was made with other settings: {'; '.join(map(str, found))}",
        f"{go_on}, or choose a new `run`",
    )


def _delete(tree: dict[str, Any], names: Sequence[str]) -> None:
    """Delete the leaf at `names`, and nodes that become empty by that: older versions had neither."""
    first, *rest = names
    if rest:
        _delete(tree[first], rest)
    if not rest or not tree[first]:
        del tree[first]


def _is_on_this_machine(url: str) -> bool:
    """Whether the address of a store is valid on this machine only."""
    host = urlsplit(url).hostname
    if url.startswith("file:") or host in (None, "localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _flag(difference: Difference) -> str:
    return f"--set {shlex.quote(f'{difference.path}={written(difference.run)}')}"


def _shown(value: Any) -> str:
    return "not a setting" if value is ABSENT else written(value)
