"""Files that a command writes for people: whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from distrl.errors import ConfigError


def write(path: Path, data: bytes) -> None:
    """Write the file in place of what was there. Raises ConfigError where it cannot be."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_bytes(data)
        os.replace(fresh, path)
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(str(path), f"cannot be written ({error.strerror})", "name a writable directory with --out")
