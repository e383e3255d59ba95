"""Adapters of a run's versions.

    adapters/<run>/<sha256>.safetensors     content-addressed, of this run only: pruning takes none from another run
    adapters/<run>/pruned.json              which were deleted, by which settings; written before the first deletion

Versions that were published before that name adapters/<sha256>.safetensors, which runs share; those stay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from distrl.store.folders import ADAPTERS
from distrl.store.objects import MissingObjectError, ObjectStore, listed
from distrl.types import ObjectRef, Version


def put_adapter(store: ObjectStore, run: str, weights: bytes) -> ObjectRef:
    """Store the adapter of a version of `run`. Raises StoreError."""
    return store.put(_folder(run), weights, "safetensors")


def read_adapter(store: ObjectStore, run: str, version: Version) -> bytes:
    """The adapter of a version of `run`. Raises StoreError; a MissingObjectError says so where it was pruned."""
    try:
        return store.get(version.adapter)
    except MissingObjectError:
        note = _note(store, run)
        if version.version > note["newest"] or not _is_own(run, version.adapter.key):
            raise
        raise MissingObjectError(
            f"adapter of version {version.version} of run {run}",
            f"was pruned by {note['settings']}",
            "name a version whose adapter is kept, such as the newest; learner.keep_adapters says how many are",
        ) from None


def delete_adapters(store: ObjectStore, run: str, versions: Iterable[Version], settings: str) -> int:
    """Delete the adapters of `versions` that are of this run alone and still there; returns how many there were.

    settings: what asks for it, for those who miss one. Interrupted anywhere, it may be repeated. Raises StoreError.
    """
    there = set(listed(store, f"{_folder(run)}/"))
    doomed = [version for version in versions if _is_own(run, version.adapter.key) and version.adapter.key in there]
    if not doomed:
        return 0
    newest = max(_note(store, run)["newest"], *(version.version for version in doomed))
    note = {"newest": newest, "settings": settings}
    store.put_named(_note_key(run), json.dumps(note, sort_keys=True).encode())
    keys = sorted({version.adapter.key for version in doomed})
    for key in keys:
        store.delete(key)
    return len(keys)


def adapters_bytes(store: ObjectStore, run: str, versions: Iterable[Version]) -> int:
    """Bytes of the adapters of `run`, whose versions are `versions`, that are stored. Raises StoreError."""
    shared = {
        version.adapter.key: version.adapter.size for version in versions if not _is_own(run, version.adapter.key)
    }
    return store.usage(f"{_folder(run)}/")[1] + sum(shared.values())


def copy_pruned(store: ObjectStore, to: ObjectStore, run: str) -> None:
    """Copy what says that adapters of `run` were pruned, to where the run is copied. Raises StoreError."""
    data = store.get_named(_note_key(run))
    if data is not None:
        to.put_named(_note_key(run), data)


def forget_pruned(store: ObjectStore, run: str) -> None:
    """Delete what says that adapters were pruned; the run's name may be used again. Raises StoreError."""
    store.delete(_note_key(run))


def _folder(run: str) -> str:
    return ADAPTERS.of(run)


def _note_key(run: str) -> str:
    return f"{_folder(run)}/pruned.json"


def _is_own(run: str, key: str) -> bool:
    return key.startswith(f"{_folder(run)}/")


def _note(store: ObjectStore, run: str) -> dict[str, Any]:
    """newest: the highest version whose adapter was ever pruned; -1 for none. settings: those of the last time."""
    data = store.get_named(_note_key(run))
    try:
        found = json.loads(data or b"{}")
        return {"newest": int(found.get("newest", -1)), "settings": str(found.get("settings", ""))}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {"newest": -1, "settings": ""}
