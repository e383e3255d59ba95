"""The adapter of a published version: for a policy, or exported as PEFT's files."""

from __future__ import annotations

from pathlib import Path

from distrl.broker.journal import versions_in_force
from distrl.config import Config
from distrl.errors import ConfigError, PolicyError
from distrl.policy.adapters import OLDER_WEIGHTS, WEIGHTS, write_peft
from distrl.policy.full_weights import holds_whole_weights
from distrl.store.adapters import read_adapter
from distrl.store.objects import open_store
from distrl.text import ranges
from distrl.types import Version


def export_adapter(config: Config, number: int | None, out: Path) -> Version:
    """Write the adapter of version `number` of the run (None: the newest) to the directory `out`; returns the version.

    Raises ConfigError where there is no such version, or `out` cannot be written or holds an adapter already;
    BrokerError, StoreError, and PolicyError for a malformed adapter and for weights that are none.
    """
    if any((out / name).exists() for name in (WEIGHTS, OLDER_WEIGHTS)):
        raise ConfigError("--out", f"{out} holds an adapter already", "name another directory")
    version, data = adapter_of(config, number)
    if holds_whole_weights(data):
        raise PolicyError(
            f"version {version.version} of run {config.run}",
            "holds whole weights, as with policy.trains=all or of a recurrent Q, and PEFT has a form for LoRA alone",
            f"read {version.adapter.key} of the store as it is, a safetensors file, or export a run that trains LoRA",
        )
    try:
        write_peft(data, out)
    except OSError as error:
        raise ConfigError("--out", f"{out} cannot be written ({error.strerror})", "name a writable directory") from None
    return version


def adapter_of(config: Config, number: int | None) -> tuple[Version, bytes]:
    """Version `number` of the run (None: the newest) and its adapter, checked against its hash.

    Raises ConfigError where there is no such version; BrokerError, StoreError.
    """
    versions = {each.version: each for each in versions_in_force(config)}
    wanted = max(versions, default=0) if number is None else number
    if wanted not in versions:
        raise ConfigError(
            "--version",
            f"run {config.run} has no version {wanted}, or its updates are void",
            f"it has {ranges(versions) or 'none'}; name another, or another --run",
        )
    return versions[wanted], read_adapter(open_store(config.store), config.run, versions[wanted])
