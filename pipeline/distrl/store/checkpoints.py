"""Checkpoints of a run: tensors in safetensors objects, then a manifest that names them, written last.

    runs/<run>/tensors/<sha256>.safetensors      content-addressed, of this run only
    runs/<run>/checkpoints/<u:08d>.json          {"body": {u, run, files, meta}, "sha256": of the body}

A checkpoint exists once its manifest does, so after a crash while saving the previous one is the latest.
Nothing is ever unpickled.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from distrl.errors import StoreError
from distrl.store.folders import RUNS
from distrl.store.objects import KEY, CorruptObjectError, MissingObjectError, ObjectStore, listed
from distrl.types import ObjectRef

Tensors = dict[str, NDArray[Any]]

FILE_BYTES = 256 * 1024 * 1024
"""Tensors are split into files of about this size, which bounds the additional memory for saving."""

_MANIFEST = re.compile(r"([0-9]{8}|[1-9][0-9]{8,17})\.json")

_log = logging.getLogger(__name__)


def save_checkpoint(
    store: ObjectStore, run: str, u: int, tensors: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]
) -> None:
    """Save `tensors` (numbers or booleans) and `meta` (JSON-able) as the checkpoint of update `u`.

    On return it is the latest for every `u` not below the others. Equal tensors are equal bytes, stored once.
    Raises StoreError if the store cannot be written or safetensors cannot hold a tensor, ValueError and TypeError if
    `meta` is not JSON; the previous checkpoint is then still the latest.
    """
    if u < 0:
        raise ValueError(f"an update is numbered from 0, and this is {u}")
    meta_text = _canonical(dict(meta))
    files = []
    for part in _parts(tensors):
        ref = store.put(_tensor_folder(run), _pack(part, run, u), "safetensors")
        files.append({"key": ref.key, "sha256": ref.sha256, "size": ref.size})
    body = {"run": run, "u": u, "files": files, "meta": json.loads(meta_text)}
    manifest = {"body": body, "sha256": _digest(body)}
    store.put_named(_manifest_key(run, u), _canonical(manifest).encode())


def latest_checkpoint(
    store: ObjectStore, run: str, at_most: int | None = None
) -> tuple[dict[str, Any], Tensors] | None:
    """Meta and tensors of the newest complete checkpoint (of update `at_most` or before), or None.

    Skips incomplete or damaged ones with a warning. The tensors are fresh and writable. Raises StoreError if the store
    itself fails: an unreachable store must not lead to an older checkpoint.
    """
    for u in checkpoints(store, run):
        if at_most is not None and u > at_most:
            continue
        found = load_checkpoint(store, run, u)
        if found is not None:
            return found
    return None


def load_checkpoint(store: ObjectStore, run: str, u: int) -> tuple[dict[str, Any], Tensors] | None:
    """Meta and tensors of the checkpoint of update `u`; None, with a warning, if it is incomplete or damaged.

    Raises StoreError if the store itself fails.
    """
    try:
        meta, files = _read_manifest(store, run, u)
        tensors: Tensors = {}
        for ref in files:
            tensors.update(safetensors.numpy.load(store.get(ref)))
    except (MissingObjectError, CorruptObjectError, SafetensorError, KeyError) as error:  # the last: a type NumPy lacks
        _log.warning("checkpoint %d of %s is skipped, using the one before it: %s", u, run, error)
        return None
    return meta, tensors


def checkpoint_meta(store: ObjectStore, run: str, u: int) -> dict[str, Any] | None:
    """The meta of update `u`'s manifest, without tensors; None, with a warning, if it is damaged or missing.

    Raises StoreError if the store itself fails.
    """
    try:
        meta: dict[str, Any] = _read_manifest(store, run, u)[0]
    except (MissingObjectError, CorruptObjectError) as error:
        _log.warning("checkpoint %d of %s is skipped, using the one before it: %s", u, run, error)
        return None
    return meta


def delete_checkpoints(store: ObjectStore, run: str, updates: Iterable[int]) -> None:
    """Delete the manifests of these updates; `prune` deletes their tensors. Only the run's learner may call it."""
    for u in updates:
        store.delete(_manifest_key(run, u))


def tensor_files(store: ObjectStore, run: str) -> frozenset[str]:
    """The keys of every tensor file of `run`, whether a checkpoint names it or not."""
    return frozenset(listed(store, f"{_tensor_folder(run)}/"))


def prune(store: ObjectStore, run: str, keep: int, prunable: Collection[str]) -> int:
    """Delete all but the newest `keep` complete checkpoints of `run`, and then the `prunable` files that none names.

    A checkpoint with a damaged manifest or a missing file does not count towards `keep`, so the last good one always
    stays. Returns how many objects were deleted. Only the run's learner may call it, and not while it saves.

    prunable: `tensor_files` at a time when the caller was surely the run's learner. Later files may belong to a
    checkpoint that a successor is saving, whose manifest is not written yet.
    """
    if keep < 1:
        raise ValueError(f"at least one checkpoint is kept, and this is {keep}")
    updates = checkpoints(store, run)
    stored = tensor_files(store, run)
    named: set[str] = set()
    kept = 0
    while updates and kept < keep:
        try:
            _, files = _read_manifest(store, run, updates.pop(0))
        except (MissingObjectError, CorruptObjectError):
            continue
        keys = {ref.key for ref in files}
        named |= keys
        kept += keys <= stored
    # Manifests first, so that none ever names a deleted file.
    doomed = [*(_manifest_key(run, u) for u in updates), *sorted((stored & set(prunable)) - named)]
    for key in doomed:
        store.delete(key)
    return len(doomed)


def copy_checkpoints(store: ObjectStore, to: ObjectStore, run: str) -> int:
    """Copy the checkpoints of `run`, the newest first, each manifest after the tensors that it names. Returns how many
    objects were copied.

    The run's learner may prune meanwhile: a checkpoint that is gone or damaged is skipped, and where none was left
    of all that were there, those that came since are copied. Raises StoreError where a store fails.
    """
    copied, tried, whole = set[str](), set[int](), 0
    while not whole and (found := [u for u in checkpoints(store, run) if u not in tried]):
        tried.update(found)
        for u in found:
            try:
                manifest = _manifest(store, run, u)
                for ref in _parsed(manifest, run, u)[1]:
                    if ref.key not in copied:
                        to.put_named(ref.key, store.get(ref))
                        copied.add(ref.key)
            except (MissingObjectError, CorruptObjectError) as error:
                _log.warning("checkpoint %d of %s is not copied: %s", u, run, error)
                continue
            to.put_named(_manifest_key(run, u), manifest)
            whole += 1
    return len(copied) + whole


def is_checkpoint(run: str, key: str) -> bool:
    """Whether the object with this key is a part of a checkpoint of `run`."""
    return key.startswith((f"{_tensor_folder(run)}/", f"{_manifest_folder(run)}/"))


def checkpoints(store: ObjectStore, run: str) -> list[int]:
    """The updates that have a checkpoint (complete or not), newest first."""
    folder = f"{_manifest_folder(run)}/"
    matches = (_MANIFEST.fullmatch(key.removeprefix(folder)) for key in store.list(folder))
    return sorted((int(match[1]) for match in matches if match), reverse=True)


def _tensor_folder(run: str) -> str:
    return f"{RUNS.of(run)}/tensors"


def _manifest_folder(run: str) -> str:
    return f"{RUNS.of(run)}/checkpoints"


def _manifest_key(run: str, u: int) -> str:
    return f"{_manifest_folder(run)}/{u:08d}.json"


def _parts(tensors: Mapping[str, NDArray[Any]]) -> Iterator[Tensors]:
    """`tensors` in the order of their names, split into parts of at most FILE_BYTES; at least one part."""
    part: Tensors = {}
    size = 0
    for name in sorted(tensors):
        array = np.asarray(tensors[name])
        if part and size + array.nbytes > FILE_BYTES:
            yield part
            part, size = {}, 0
        part[name] = array
        size += array.nbytes
    yield part


def _pack(part: Tensors, run: str, u: int) -> bytes:
    # safetensors.numpy writes the raw memory: a transposed view would be read back with other numbers.
    dense = {name: array if array.flags.c_contiguous else np.ascontiguousarray(array) for name, array in part.items()}
    try:
        return safetensors.numpy.save(dense)
    except SafetensorError as error:
        raise StoreError(
            f"checkpoint {u} of {run}", f"holds what safetensors cannot ({error})", "save numbers or booleans alone"
        ) from None


def _read_manifest(store: ObjectStore, run: str, u: int) -> tuple[Any, list[ObjectRef]]:
    """Meta and tensor files of the checkpoint of update `u`. Raises MissingObjectError, CorruptObjectError."""
    return _parsed(_manifest(store, run, u), run, u)


def _manifest(store: ObjectStore, run: str, u: int) -> bytes:
    """Raises MissingObjectError."""
    key = _manifest_key(run, u)
    data = store.get_named(key)
    if data is None:
        raise MissingObjectError(f"manifest {key}", "was deleted while it was looked for", "read the latest again")
    return data


def _parsed(data: bytes, run: str, u: int) -> tuple[Any, list[ObjectRef]]:
    """Meta and tensor files of a manifest. Raises CorruptObjectError where it is not that of update `u`."""
    key = _manifest_key(run, u)
    try:
        manifest = json.loads(data)
        body = manifest["body"]
        if _digest(body) != manifest["sha256"]:
            raise _damaged(key, "does not hash to the sha256 in it")
        if (body["run"], body["u"]) != (run, u):
            raise _damaged(key, f"is that of update {body['u']} of {body['run']}")
        files = [ObjectRef(str(item["key"]), str(item["sha256"]), int(item["size"])) for item in body["files"]]
        meta = body["meta"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(key, f"is no manifest of this version ({error!r})") from None
    for ref in files:
        if not (KEY.fullmatch(ref.key) and ref.key.startswith(f"{_tensor_folder(run)}/")):
            raise _damaged(key, f"names {ref.key!r}, which is no tensor file of the run")
    return meta, files


def _damaged(key: str, what: str) -> CorruptObjectError:
    return CorruptObjectError(f"manifest {key}", what, "delete it; the checkpoint before it is used")


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(body).encode()).hexdigest()
