"""Writes files for people, whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from distrl.errors import ConfigError


def write(path: Path, data: bytes) -> None:
    """Replace the file atomically; of concurrent writers one wins. Raises ConfigError where it cannot be written.

    Nothing is left after an error; after a kill a `.new` file may be.
    """
    # Not by process id: two machines that share the folder may have equal ones.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        try:
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # else a power cut may leave an empty file under the name
            os.replace(fresh, path)
        except BaseException:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from None


def make_folder(folder: Path) -> None:
    """Make the folder where it is missing. Raises ConfigError where it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from None


def unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(str(path), f"cannot be written ({error.strerror})", "name one that can be written with --out")
