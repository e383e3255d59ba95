"""Writes files with secrets."""

from __future__ import annotations

import os
from pathlib import Path

from distrl.store.directory import sync


def write_private(file: Path, text: str, encoding: str = "utf-8") -> None:
    """Write `file`, readable by its owner only (mode 0600), whole or not at all. Raises OSError.

    The text goes to a new file that is then renamed: it is never in an old one with wider permissions, and after a kill
    or on a full disk there is no half file, which only a person could delete. One writer at a time.
    """
    fresh = file.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding=encoding) as out:
        out.write(text)
    sync(fresh)
    fresh.replace(file)
