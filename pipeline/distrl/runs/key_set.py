"""A set of the object store's keys in a temporary file: a run of weeks names too many for memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from distrl.errors import StoreError

CACHE_MB: Final = 32
"""Cache of the file in memory."""


class KeySet:
    """A set of keys. One thread. `close` deletes its file, which has no name, so other processes cannot find it.

    Raises StoreError where the file cannot take another key.
    """

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)
        self._do("PRAGMA journal_mode = OFF")  # nobody reads it after a kill
        self._do("PRAGMA synchronous = OFF")
        self._do(f"PRAGMA cache_size = -{CACHE_MB * 1024}")
        self._do("CREATE TABLE keys (key TEXT PRIMARY KEY) WITHOUT ROWID")

    def __enter__(self) -> KeySet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[str]:
        """In ascending order. The set must not change meanwhile."""
        with _explained():
            for (key,) in self._file.execute("SELECT key FROM keys ORDER BY key"):
                yield key

    def add(self, key: str) -> bool:
        """Add a key. Returns whether it was not in the set yet."""
        return self._do("INSERT OR IGNORE INTO keys VALUES (?)", [key]) == 1

    def discard(self, key: str) -> None:
        self._do("DELETE FROM keys WHERE key = ?", [key])

    def close(self) -> None:
        self._file.close()

    def _do(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Execute a statement. Returns how many rows it changed."""
        with _explained():
            return self._file.execute(statement, values).rowcount


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(
            "the temporary folder",
            f"the list of the run's objects does not fit there ({error}); it takes about 150 bytes for each",
            "make room there, or set TMPDIR to a folder with more, and run the command again",
        ) from None
