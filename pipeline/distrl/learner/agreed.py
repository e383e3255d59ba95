"""The learning settings that a run was made with, in its store, so that a refusal names the setting that differs.

    runs/<run>/learning-settings/<fingerprint>.json   `learning_settings` with that fingerprint

The journal and the checkpoints carry the fingerprint alone, which cannot say what is behind it.
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
"""Stands for a setting that one side does not know, because it was made by another version of DistRL."""

BASE_PATH, BASE_SHA256 = "policy.base_model", "policy.base_model_sha256"


ADAPTERS = "peft"
"""How adapters are written: a run has one way, since versions and checkpoints are compared by their bytes."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A learning setting that is not as the run has it. `path` is as in `config show`."""

    path: str
    run: Any
    here: Any


def learning_settings(config: Config) -> dict[str, Any]:
    """The settings that the fold reads, and what the base model is, by section and name, JSON-able.

    policy.base_model_sha256 is what its base model is; where it lies (policy.base_model) is for people alone.
    Raises PolicyError where it cannot be read.
    """
    found = config.learning_settings()
    found["policy"] |= {"base_model_sha256": base_sha256(config.policy), "adapters": ADAPTERS}
    return found


def learning_fingerprint(config: Config) -> str:
    """sha256 (hex) of the learning settings: two runs with equal ones fold a log alike. Raises PolicyError."""
    found = learning_settings(config)
    del found["policy"]["base_model"]  # moved, it is the same one; another one in its place is not
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def record_settings(config: Config, store: ObjectStore) -> None:
    """Store what is behind the fingerprint of `config`, if it is not there. Raises StoreError.

    A learner calls it before it journals anything with that fingerprint.
    """
    key = _key(config.run, learning_fingerprint(config))
    if store.get_named(key) is None:
        store.put_named(key, json.dumps(learning_settings(config), sort_keys=True, indent=1).encode())


def refuse_other_settings(fingerprint: str, config: Config, what: str) -> None:
    """Raises ConfigError where `what` was made with other learning settings than `config` has.

    The error names each setting with both values, where the store knows those behind `fingerprint`.
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
    """The learning settings with that fingerprint, as the run's store knows them; empty where it does not."""
    with suppress(StoreError, ValueError):
        found = open_store(config.store).get_named(_key(config.run, fingerprint))
        kept = json.loads(found) if found is not None else {}
        return kept if isinstance(kept, dict) else {}
    return {}


def differences(run: Mapping[str, Any], here: Mapping[str, Any]) -> list[Difference]:
    """Each setting with another value, in the order of the paths. Empty where nothing is known of the run. Pure."""
    if not run:
        return []
    theirs, ours = dict(_flat(run)), dict(_flat(here))
    both = {path: (theirs.get(path, ABSENT), ours.get(path, ABSENT)) for path in sorted(theirs.keys() | ours.keys())}
    found = [Difference(path, then, now) for path, (then, now) in both.items() if then != now]
    changed = {each.path for each in found}
    # The same base model elsewhere is no difference; of another one, its place says more to a person than its hash.
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
