"""What a base model is called: a hash of its files, for who may not load it. Knows no torch."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Final

SHIPPED: Final = Path(__file__).parent / "policy" / "base"
"""The tiny base model that comes with the package."""

FILES: Final = ("config.json", "model.safetensors")


def identity(config: bytes, weights: bytes) -> str:
    """sha256 (hex) that names a base model: over the sha256 of config.json and of model.safetensors."""
    return hashlib.sha256(hashlib.sha256(config).digest() + hashlib.sha256(weights).digest()).hexdigest()


def identity_of(directory: Path | None = None) -> str:
    """The identity of the base model in `directory` (None: the shipped one). Raises OSError.

    Its files are hashed once and again when they change: a full-size model has gigabytes.
    """
    files = tuple((directory or SHIPPED) / name for name in FILES)
    return _identity(files, tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files))


@lru_cache(maxsize=8)
def _identity(files: tuple[Path, ...], _stamps: tuple[tuple[int, int], ...]) -> str:
    total = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
