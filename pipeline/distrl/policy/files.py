"""The files of a base model, of any family: its config.json, and its identity. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from distrl.errors import PolicyError

LOG = logging.getLogger("distrl.policy.files")

LARGE: Final = 1 << 30
"""Bytes of a base model whose reading is announced: a start says nothing else until it is read."""
CONFIG: Final = "config.json"
HINT: Final = (
    "name the directory of a whole base model, or ORGANISATION/MODEL@REVISION of a hub; with policy.base_model unset "
    "it is the shipped one"
)


def read(file: Path) -> bytes:
    """Raises PolicyError."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise _unreadable(file, error) from None


def refuse_used(directory: Path) -> None:
    """Raises PolicyError where a base model cannot be written without touching what is there."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        what = "holds files" if directory.is_dir() else "is a file"
        raise PolicyError(str(directory), what, "name one with --out that is empty or not there")


def make_empty(directory: Path) -> None:
    """Makes the directory of a base model before hours of work are to end in it. Raises PolicyError as `refuse_used`,
    and where it cannot be written."""
    refuse_used(directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise PolicyError(str(directory), what, "name a directory with --out that can be") from None


def parsed(content: bytes, file: Path) -> dict[str, Any]:
    """The mapping in `file`, from its content; {} where it is none. Raises PolicyError for no JSON."""
    try:
        config = json.loads(content)
    except ValueError as error:
        raise PolicyError(str(file), f"is no JSON ({error})", HINT) from None
    return config if isinstance(config, dict) else {}


def identity(sha256s: Sequence[bytes]) -> str:
    """sha256 (hex) over the sha256 (raw) of each file, in the order that the family gives them."""
    return hashlib.sha256(b"".join(sha256s)).hexdigest()


def identity_of(files: Sequence[Path]) -> str:
    """The identity of what lies in `files`. Raises PolicyError.

    They are hashed once, and again when they change: a full-size model has gigabytes.
    """
    try:
        return _identity(tuple(files), tuple((file.stat().st_mtime_ns, file.stat().st_size) for file in files))
    except OSError as error:
        raise _unreadable(error.filename, error) from None


@lru_cache(maxsize=8)
def _identity(files: tuple[Path, ...], stamps: tuple[tuple[int, int], ...]) -> str:
    if (total := sum(size for _, size in stamps)) >= LARGE:
        LOG.info("reading the %.1f GB of the base model in %s, whose sha256 names it", total / 1e9, files[0].parent)
    return identity([_sha256(path) for path in files])


def _sha256(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _unreadable(file: object, error: OSError) -> PolicyError:
    return PolicyError(str(file), f"cannot be read ({error.strerror})", HINT)
