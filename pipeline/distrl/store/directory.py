"""Objects as files in a directory: the store of one machine without an S3 endpoint.

Files are written atomically: under a hidden name, synced to disk and renamed. A process killed in between leaves the
hidden file, which no key names and no listing shows; a later writer removes it.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from distrl import config
from distrl.errors import StoreError
from distrl.store.objects import (
    check_round_trip,
    checked_key,
    checked_prefix,
    corrupt,
    missing,
    reference,
    verified,
)
from distrl.types import ObjectRef

PART = ".part-"
LEFT_S = 3600.0
"""No write takes this long: a hidden file of this age was left by a killed process."""
LARGE = 1 << 20
"""Bytes. After an object of this size, its folder is searched for such files; not after a smaller one, since a folder
of screenshots may have a million names."""


UMASK: Final = os.umask(0o077)
"""The umask of this process. The system only tells it when another one is set."""
os.umask(UMASK)


class DirectoryStore:
    """An ObjectStore in `root`, which is created with the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._tidied: set[Path] = set()

    @classmethod
    def from_config(cls, settings: config.StoreSettings) -> DirectoryStore:
        return cls(Path(settings.url.removeprefix("file://")).expanduser())

    def put(self, kind: str, data: bytes, suffix: str, day: str | None = None) -> ObjectRef:
        ref = reference(kind, data, suffix, day)
        if self._read(ref.key, ref.size + 1) != data:  # a file damaged on disk is written again
            self._write(ref.key, data)
        else:
            self._sync_name(self.root / ref.key)
        return ref

    def get(self, ref: ObjectRef) -> bytes:
        if ref.size < 0:
            raise corrupt(ref, "cannot have a negative size", str(self))
        data = self._read(checked_key(ref.key), ref.size + 1)
        if data is None:
            raise missing(ref.key, str(self))
        return verified(ref, data, str(self))

    def put_named(self, key: str, data: bytes) -> None:
        self._write(checked_key(key), data)

    def get_named(self, key: str) -> bytes | None:
        return self._read(checked_key(key))

    def list(self, prefix: str) -> Iterator[str]:
        folder = self.root / checked_prefix(prefix).rpartition("/")[0]
        yield from sorted(key for key in self._keys(folder) if key.startswith(prefix))

    def usage(self, prefix: str) -> tuple[int, int]:
        sizes = [self._size(key) for key in self.list(prefix)]
        return len(sizes), sum(sizes)

    def delete(self, key: str) -> None:
        path = self.root / checked_key(key)
        try:
            path.unlink(missing_ok=True)
        except NotADirectoryError:
            return
        except OSError as error:
            raise self._failed(error, f"{path} cannot be deleted") from None

    def check(self) -> None:
        check_round_trip(self, str(self))

    def __str__(self) -> str:
        return f"file://{self.root}"

    def _size(self, key: str) -> int:
        try:
            return (self.root / key).stat().st_size
        except FileNotFoundError:
            return 0  # deleted since it was listed
        except OSError as error:
            raise self._failed(error, f"{self.root / key} cannot be looked at") from None

    def _keys(self, folder: Path) -> Iterator[str]:
        def stop(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError | NotADirectoryError):
                raise self._failed(error, f"{folder} cannot be listed")

        for where, _, names in os.walk(folder, onerror=stop):
            for name in names:
                if not name.startswith("."):
                    yield (Path(where) / name).relative_to(self.root).as_posix()

    def _read(self, key: str, limit: int = -1) -> bytes | None:
        """The first `limit` bytes of a file (all for -1), or None if it does not exist."""
        path = self.root / key
        try:
            with path.open("rb") as file:
                # Never read more than the file's size: `limit` may come from an untrusted record.
                return file.read(limit if limit < 0 else min(limit, os.fstat(file.fileno()).st_size + 1))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise self._failed(error, f"{path} cannot be read") from None

    def _write(self, key: str, data: bytes) -> None:
        path = self.root / key
        try:
            _make_folder(path.parent)
            descriptor, hidden = tempfile.mkstemp(prefix=PART, dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    os.fchmod(descriptor, 0o666 & ~UMASK)  # a temporary file is for its user alone
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(hidden, path)
            except BaseException:
                Path(hidden).unlink(missing_ok=True)
                raise
            sync(path.parent)  # the rename, too
            if len(data) >= LARGE:
                self._tidy(path.parent, path.stat().st_mtime)
        except OSError as error:
            raise self._failed(error, f"{path} cannot be written") from None

    def _sync_name(self, path: Path) -> None:
        """Sync the name of a file that was there: who wrote it may have been killed just before."""
        try:
            sync(path.parent)
        except OSError as error:
            raise self._failed(error, f"{path.parent} cannot be synced") from None

    def _tidy(self, folder: Path, now: float) -> None:
        """Remove what killed writers have left there, once for each folder: nothing lists it, and it fills the disk.

        now: by the clock that the folder's files have, which may be another machine's.
        """
        if folder in self._tidied:
            return
        self._tidied.add(folder)
        for left in folder.glob(f"{PART}*"):
            with suppress(OSError):  # another process was first, or owns it
                if now - left.stat().st_mtime > LEFT_S:
                    left.unlink()

    def _failed(self, error: OSError, what: str) -> StoreError:
        return StoreError(
            "store.url",
            f"{what}: {error.strerror or error}",
            f"free space under {self.root} and make it writable, or point store.url elsewhere",
        )


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it that are missing, each with its name synced."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in reversed(made):
        sync(each.parent)


def sync(path: Path) -> None:
    """Sync a file to disk, or a folder: the names in it, without which a power loss may undo a rename."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Sync a folder to disk with all that is in it."""
    for base, _, files in os.walk(folder):
        for path in (*(Path(base, name) for name in files), Path(base)):
            sync(path)
