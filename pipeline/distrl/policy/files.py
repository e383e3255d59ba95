"""The identity of a base model: a hash of the files that decide what it does. Needs no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path


def identity(sha256s: Sequence[bytes]) -> str:
    """sha256 (hex) over the sha256 (raw) of each file, in the order that the family gives them."""
    return hashlib.sha256(b"".join(sha256s)).hexdigest()


def identity_of(files: Sequence[Path]) -> str:
    """The identity of what lies in `files`. Raises OSError.

    They are hashed once, and again when they change: a full-size model has gigabytes.
    """
    return _identity(tuple(files), tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files))


@lru_cache(maxsize=8)
def _identity(files: tuple[Path, ...], _stamps: tuple[tuple[int, int], ...]) -> str:
    return identity([_sha256(path) for path in files])


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
