"""Files that a command writes for people: whole or not at all."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from distrl.errors import ConfigError


def write(path: Path, data: bytes) -> None:
    """Write the file in place of what was there; of several that do so at once, one wins whole.

    Raises ConfigError where it cannot be; nothing is left of it then. (A kill in between may leave a `.new` beside it.)
    """
    # Two commands that share a folder may run on two machines, where even their process ids may be equal.
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        try:
            fresh.write_bytes(data)
            os.replace(fresh, path)
        except BaseException:
            with suppress(OSError):
                fresh.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise unwritable(path, error) from None


def make_folder(folder: Path) -> None:
    """Make the folder where it is missing. Raises ConfigError where it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from None


def unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(str(path), f"cannot be written ({error.strerror})", "name a writable directory with --out")
