"""The learning settings of a run, stored by fingerprint, so that a refusal can name the setting that differs.

    runs/<run>/learning-settings/<fingerprint>.json

The journal and the checkpoints carry only the fingerprint (`learning_fingerprint`).
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from distrl.config import Config
from distrl.config.allowed import written
from distrl.errors import ConfigError, StoreError
from distrl.policy.registry import base_sha256
from distrl.store.objects import ObjectStore, open_store

ABSENT = object()
"""Value of a setting that one side's version of DistRL does not have."""

BASE_PATH, BASE_SHA256 = "policy.base_model", "policy.base_model_sha256"

ADAPTERS = "peft"
"""File format of adapters. A run has one, since versions and checkpoints are compared by their bytes."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A learning setting with another value than the run has."""

    path: str
    """As in `config show`, like learner.seed."""
    run: Any
    """The run's value; ABSENT where it has no such setting."""
    here: Any
    """Our value; ABSENT where we have no such setting."""


def learning_settings(config: Config) -> dict[str, Any]:
    """The settings that the fold reads, by section and name, JSON-able, with the sha256 of the base model.

    policy.base_model_sha256 identifies the base model; its path (policy.base_model) is shown to people only.
    Raises PolicyError where the base model cannot be read.
    """
    found = config.learning_settings()
    found["policy"] |= {"base_model_sha256": base_sha256(config.policy), "adapters": ADAPTERS}
    return found


def learning_fingerprint(config: Config) -> str:
    """sha256 (hex) of the learning settings: with equal ones, equal logs give equal weights. Raises PolicyError."""
    found = learning_settings(config)
    del found["policy"]["base_model"]  # a path: the same model may have moved; its sha256 is in
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def record_settings(config: Config, store: ObjectStore) -> None:
    """Store the learning settings of `config` under their fingerprint, unless they are there. Raises StoreError.

    The learner calls it before it journals anything with that fingerprint.
    """
    key = _key(config.run, learning_fingerprint(config))
    if store.get_named(key) is None:
        store.put_named(key, json.dumps(learning_settings(config), sort_keys=True, indent=1).encode())


def refuse_other_settings(fingerprint: str, config: Config, what: str) -> None:
    """Raises ConfigError where `what` (a checkpoint, a journal line) was made with other learning settings.

    The error names each setting with both values, where the store has the settings of `fingerprint`.
    """
    if fingerprint == learning_fingerprint(config):
        return
    found = differences(settings_behind(fingerprint, config), learning_settings(config))
    if not found:
        raise ConfigError(
            f"run {config.run}",
            f"{what} was made with other settings under policy, warmup, algorithm or learner, and the store has no "
            "list of them",
            "start with the settings that the run began with, or choose a new `run`",
        )
    sides = "; ".join(f"{each.path} is {_shown(each.here)} here and {_shown(each.run)} there" for each in found)
    flags = " ".join(_flag(each) for each in found if each.run is not ABSENT and each.path != BASE_SHA256)
    go_on = f"go on with {flags}" if flags else "use the version of DistRL that the run was made with"
    raise ConfigError(
        ", ".join(each.path for each in found),
        f"{what} of run {config.run} was made with other settings: {sides}",
        f"{go_on}, or choose a new `run`",
    )


def settings_behind(fingerprint: str, config: Config) -> Mapping[str, Any]:
    """The learning settings with that fingerprint from the run's store; empty where it has none or fails."""
    with suppress(StoreError, ValueError):
        found = open_store(config.store).get_named(_key(config.run, fingerprint))
        settings = json.loads(found) if found is not None else {}
        return settings if isinstance(settings, dict) else {}
    return {}


def differences(run: Mapping[str, Any], here: Mapping[str, Any]) -> list[Difference]:
    """The settings that differ, sorted by path. Empty where `run` is: its settings are unknown. Pure."""
    if not run:
        return []
    theirs, ours = dict(_flat(run)), dict(_flat(here))
    both = {path: (theirs.get(path, ABSENT), ours.get(path, ABSENT)) for path in sorted(theirs.keys() | ours.keys())}
    found = [Difference(path, then, now) for path, (then, now) in both.items() if then != now]
    changed = {each.path for each in found}
    # Show either path or sha256 of the base model: neither for a moved one; for another one the path tells more.
    hidden = BASE_PATH if theirs.get(BASE_SHA256) == ours.get(BASE_SHA256) else BASE_SHA256
    return [each for each in found if each.path != hidden or {BASE_PATH, BASE_SHA256} - changed == {BASE_PATH}]


def _flat(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        path = f"{above}.{name}" if above else name
        if isinstance(value, Mapping):
            yield from _flat(value, path)
        else:
            yield path, value


def _flag(difference: Difference) -> str:
    return f"--set {shlex.quote(f'{difference.path}={written(difference.run)}')}"


def _shown(value: Any) -> str:
    return "not a setting" if value is ABSENT else written(value)


def _key(run: str, fingerprint: str) -> str:
    return f"runs/{run}/learning-settings/{fingerprint}.json"
