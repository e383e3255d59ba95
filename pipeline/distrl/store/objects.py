"""The interface of object stores, and their common rules: keys, names by content, verified reads.

A content-addressed object is immutable: its key has the sha256 of its bytes, so writing it twice changes nothing and
reading verifies it. A named object (a manifest) may be written again; the last write wins.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Protocol

from distrl import config
from distrl.errors import StoreError
from distrl.store.folders import CHECK
from distrl.types import ObjectRef

LOG = logging.getLogger("distrl.store")

KEY = re.compile(r"(?!.{1025})[A-Za-z0-9_][A-Za-z0-9._-]{0,127}(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,127}){0,15}")
"""A key: segments joined by '/', none starting with a dot, so that no key leaves the store or names a hidden file; of
at most 1,024 characters, which S3 takes."""

PREFIX = re.compile(rf"(?:{KEY.pattern}/?)?")
DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
SHA256 = re.compile(r"[0-9a-f]{64}")
SUFFIX = re.compile(r"[a-z0-9]{1,16}")

PROBE_KEY = f"{CHECK.name}/writable"
PROBE = b"distrl wrote this to see that it can\n"


class MissingObjectError(StoreError):
    """No object has this key."""


class CorruptObjectError(StoreError):
    """The object's bytes do not match its reference."""


class ObjectStore(Protocol):
    """Objects by key. Safe to use from several threads.

    Every method raises StoreError if the store cannot be reached, refuses the credentials or cannot be written,
    and for an invalid key.
    """

    def put(self, kind: str, data: bytes, suffix: str, day: str | None = None) -> ObjectRef:
        """Store `data` as `<kind>/[<day>/]<sha256>.<suffix>`; once stored, it stays. Returns when it is durable.

        day: UTC, from `utc_day`; for objects with a retention of some days (screenshots).
        """
        ...

    def get(self, ref: ObjectRef) -> bytes:
        """The bytes that `ref` names, verified. Raises MissingObjectError, CorruptObjectError (size or hash differ)."""
        ...

    def put_named(self, key: str, data: bytes) -> None:
        """Store `data` under `key` atomically, replacing an old object."""
        ...

    def get_named(self, key: str) -> bytes | None:
        """The object last stored under `key`; None if there is none."""
        ...

    def list(self, prefix: str) -> Iterator[str]:
        """The keys that start with `prefix`, in ascending order. It may end in the middle of a name."""
        ...

    def usage(self, prefix: str) -> tuple[int, int]:
        """How many objects have keys that start with `prefix`, and how many bytes they are together."""
        ...

    def delete(self, key: str) -> None:
        """Remove the object, if it is there."""
        ...

    def check(self) -> None:
        """Write a small object and read it back. Raises StoreError, which names the setting at fault."""
        ...


def open_store(settings: config.StoreSettings) -> ObjectStore:
    """The store that `store.url` names. Does not connect yet; `check` does."""
    if settings.url.startswith("file://"):
        from distrl.store.directory import DirectoryStore

        return DirectoryStore.from_config(settings)
    from distrl.store.s3 import S3Store

    return S3Store.from_config(settings)


def listed(store: ObjectStore, prefix: str) -> Iterator[str]:
    """`store.list` without names that are not keys, such as a folder that somebody made in a console. The store neither
    reads nor deletes those. A warning names each."""
    for key in store.list(prefix):
        if KEY.fullmatch(key):
            yield key
        else:
            LOG.warning("%r in the store was not written by DistRL and is left alone", key[:200])


def utc_day(at_ms: int) -> str:
    """The day, `YYYY-MM-DD` in UTC, of a time in milliseconds since the epoch."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def reference(kind: str, data: bytes, suffix: str, day: str | None) -> ObjectRef:
    """The content-addressed reference of `data`. Raises StoreError if kind, suffix or day cannot be part of a key."""
    if not SUFFIX.fullmatch(suffix) or (day is not None and not DAY.fullmatch(day)):
        raise StoreError(
            f"object {kind!r}", f"suffix {suffix!r} or day {day!r} cannot be part of a key", "use png and 2025-01-31"
        )
    digest = hashlib.sha256(data).hexdigest()
    folder = kind if day is None else f"{kind}/{day}"
    return ObjectRef(checked_key(f"{folder}/{digest}.{suffix}"), digest, len(data))


def checked_key(key: str) -> str:
    """Returns `key`, which a record or a user supplied. Raises StoreError if it is invalid."""
    if not KEY.fullmatch(key):
        raise StoreError(
            f"object {key[:200]!r}",
            "is no key of the store",
            "use names of a-z, A-Z, 0-9, '.', '_', '-' joined by '/', 1,024 characters at most",
        )
    return key


def is_reference(ref: ObjectRef) -> bool:
    """Whether `ref`, which a record supplied, is valid: otherwise reading it would fail for ever."""
    return bool(KEY.fullmatch(ref.key) and SHA256.fullmatch(ref.sha256)) and ref.size >= 0


def checked_prefix(prefix: str) -> str:
    """Returns `prefix`. Raises StoreError if no key can start with it."""
    if not PREFIX.fullmatch(prefix):
        raise StoreError(f"prefix {prefix[:200]!r}", "no key starts so", "use the beginning of a key")
    return prefix


def verified(ref: ObjectRef, data: bytes, store: str) -> bytes:
    """Returns `data`. Raises CorruptObjectError if it does not match `ref`."""
    if len(data) != ref.size:
        raise corrupt(ref, f"has {len(data)} bytes or more, and its reference says {ref.size}", store)
    digest = hashlib.sha256(data).hexdigest()
    if digest != ref.sha256:
        raise corrupt(ref, f"hashes to {digest}, and its reference says {ref.sha256}", store)
    return data


def corrupt(ref: ObjectRef, what: str, store: str) -> CorruptObjectError:
    return CorruptObjectError(f"object {ref.key}", f"{what} ({store})", "restore it from a copy")


def missing(key: str, store: str) -> MissingObjectError:
    return MissingObjectError(
        f"object {key}",
        f"is not in {store}",
        "check that store.url is the store it was written to, and that its retention is longer than the topics'",
    )


def check_round_trip(store: ObjectStore, where: str) -> None:
    """Write the probe and read it back. Raises StoreError."""
    store.put_named(PROBE_KEY, PROBE)
    if store.get_named(PROBE_KEY) != PROBE:
        raise StoreError("store.url", f"{where} does not give back what was written to it", "name another store")
