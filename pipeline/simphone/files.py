"""The files of one simulated phone, in memory, for `adb push`, `adb pull` and the phone's own commands.

A path is untrusted, so it is normalised first: absolute, without "." or "..", one name for Android's several names of
/sdcard. After that it is only a key of a dictionary. Writable paths are below /sdcard and /data/local/tmp; entries and
bytes are limited, including those of running uploads.
"""

from __future__ import annotations

import posixpath
import stat
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Final

ROOTS: Final = ("/sdcard", "/data/local/tmp")
"""Paths below these can be written."""
FIXED: Final = (
    "/", "/data", "/data/local", "/data/local/tmp", "/sdcard", "/sdcard/DCIM", "/sdcard/Documents",
    "/sdcard/Download", "/sdcard/Movies", "/sdcard/Music", "/sdcard/Pictures",
)  # fmt: skip
"""Directories that are always there."""
ALIASES: Final = ("/storage/emulated/0", "/storage/self/primary", "/mnt/sdcard")
MOST_ENTRIES: Final = 1024
MOST_BYTES: Final = 32 * 1024 * 1024
LONGEST_PATH: Final = 1024
"""Bytes, as in adb's sync service."""
LONGEST_NAME: Final = 255
DIRECTORY_MODE: Final = stat.S_IFDIR | 0o771
ENCODING: Final = ("utf-8", "surrogateescape")
"""A name is bytes; bytes that are not text are preserved."""


class FileError(Exception):
    """A failed operation on a path; the text is the phone's message after the path."""


NOT_THERE = "No such file or directory"
NO_SPACE = "No space left on device"
DENIED = "Permission denied"
IS_DIRECTORY = "Is a directory"
NO_DIRECTORY = "Not a directory"
EXISTS = "File exists"


@dataclass(frozen=True, slots=True)
class FileNode:
    """A file, or a directory, which has no data. mode: as in stat(2). mtime: seconds since 1970."""

    mode: int
    mtime: int
    data: bytes = b""

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


def plain(path: str, base: str = "/") -> str:
    """Normalises `path`, relative to `base`. Raises FileError for an invalid path."""
    if not path or "\0" in path:
        raise FileError(NOT_THERE)
    named = posixpath.normpath(posixpath.join("/", base, path)).replace("//", "/")
    encoded = named.encode(*ENCODING)
    if len(encoded) > LONGEST_PATH or any(len(part) > LONGEST_NAME for part in encoded.split(b"/")):
        raise FileError("File name too long")
    for alias in ALIASES:
        if named == alias or named.startswith(f"{alias}/"):
            return "/sdcard" + named[len(alias) :]
    return named


class Files:
    """Owned by one thread. Every method takes a normalised path and raises FileError.

    now: the phone's time, seconds since 1970.
    """

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._entries = {path: FileNode(DIRECTORY_MODE, now()) for path in FIXED}
        self._bytes = 0
        self._uploads = 0

    def find(self, path: str) -> FileNode | None:
        return self._entries.get(path)

    def at(self, path: str) -> FileNode:
        """The entry at a path."""
        entry = self._entries.get(path)
        if entry is None:
            raise FileError(NOT_THERE)
        return entry

    def read(self, path: str) -> bytes:
        entry = self.at(path)
        if entry.is_directory:
            raise FileError(IS_DIRECTORY)
        return entry.data

    def held(self, path: str) -> list[tuple[str, FileNode]]:
        """Names and entries of a directory, by name."""
        if not self.at(path).is_directory:
            raise FileError(NO_DIRECTORY)
        above = path.rstrip("/") + "/"
        inside = (name for name in self._entries if name.startswith(above) and name != "/")
        return sorted((name[len(above) :], self._entries[name]) for name in inside if "/" not in name[len(above) :])

    def directories_below(self, path: str) -> list[str]:
        """All paths below, each after its parent."""
        above = path.rstrip("/") + "/"
        return sorted(
            name
            for name, entry in self._entries.items()
            if entry.is_directory and name.startswith(above) and name != "/"
        )

    def write(self, path: str, data: bytes) -> None:
        """Make or replace a file; its directory must exist. Where there is no room, an old one stays as it is."""
        if not self.at(posixpath.dirname(path)).is_directory:
            raise FileError(NO_DIRECTORY)
        old = self.find(path)
        self._room_for_bytes(len(data) - (len(old.data) if old is not None else 0))
        with self.receive(path, 0o660) as upload:
            upload.add(data)
            upload.keep(self._now())

    def move(self, path: str, to: str) -> None:
        """Rename a file; the new directory must exist. Replaces a file with that name."""
        self.read(path)
        self._writable(path)
        self._writable(to)
        if to == path:
            raise FileError(EXISTS)
        if not self.at(posixpath.dirname(to)).is_directory:
            raise FileError(NO_DIRECTORY)
        if self.find(to) is not None:
            self.remove(to)
        self._entries[to] = self._entries.pop(path)

    def receive(self, path: str, mode: int) -> Upload:
        """Begin a file that arrives in pieces; an old one with that name is removed at once, as on a phone.

        mode: permission bits.
        """
        self._writable(path)
        if self.find(path) is not None:
            self.remove(path)
        return Upload(self, path, stat.S_IFREG | (mode & 0o777))

    def make_directory(self, path: str, parents: bool = False) -> None:
        """parents: make missing parents too, and accept an existing directory."""
        if not parents:
            if self.find(path) is not None:
                raise FileError(EXISTS)
            if not self.at(posixpath.dirname(path)).is_directory:
                raise FileError(NO_DIRECTORY)
        parts = path.strip("/").split("/")
        for depth in range(1 if parents else len(parts), len(parts) + 1):
            self._make_one("/" + "/".join(parts[:depth]))

    def _make_one(self, path: str) -> None:
        found = self.find(path)
        if found is None:
            self._writable(path)
            self._room_for_entry()
            self._entries[path] = FileNode(DIRECTORY_MODE, self._now())
        elif not found.is_directory:
            raise FileError(NO_DIRECTORY)

    def remove(self, path: str, recursive: bool = False) -> None:
        entry = self.at(path)
        if entry.is_directory and not recursive:
            raise FileError(IS_DIRECTORY)
        if path in FIXED:
            raise FileError(DENIED)
        for name in [name for name in self._entries if name == path or name.startswith(f"{path}/")]:
            self._bytes -= len(self._entries.pop(name).data)

    def claim(self, size: int) -> None:
        """Reserve bytes for an upload."""
        self._room_for_bytes(size)
        self._uploads += size

    def release(self, size: int) -> None:
        self._uploads -= size

    def put(self, path: str, entry: FileNode) -> None:
        """Put a file there, with the directories above it."""
        self.make_directory(posixpath.dirname(path), parents=True)
        if self.find(path) is not None:
            self.remove(path)
        self._room_for_entry()
        self._entries[path] = entry
        self._bytes += len(entry.data)

    def _room_for_bytes(self, more: int) -> None:
        if self._bytes + self._uploads + more > MOST_BYTES:
            raise FileError(NO_SPACE)

    def _room_for_entry(self) -> None:
        if len(self._entries) >= MOST_ENTRIES:
            raise FileError(NO_SPACE)

    def _writable(self, path: str) -> None:
        if not any(path.startswith(f"{root}/") for root in ROOTS):
            raise FileError(IS_DIRECTORY if path in FIXED else DENIED)


class Upload:
    """A file being uploaded. A context manager: if left before `keep`, the file is discarded."""

    def __init__(self, files: Files, path: str, mode: int) -> None:
        self._files = files
        self._path = path
        self._mode = mode
        self._data = bytearray()

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._files.release(len(self._data))
        self._data.clear()

    def add(self, piece: bytes) -> None:
        """Raises FileError if the phone is full."""
        self._files.claim(len(piece))
        self._data += piece

    def keep(self, mtime: int) -> None:
        """The file is complete."""
        self._files.put(self._path, FileNode(self._mode, mtime, bytes(self._data)))
