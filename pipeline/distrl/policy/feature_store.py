"""Features by name, in memory up to a bound and beyond it in a file of this process.

A feature stays where it is put first. The learner passes over the whole buffer again and again, so that moving the
least recently used features to disk would move all of them in every pass. In memory, those of the first one's shape and
type lie in one array (feature_rows.py), so that a minibatch is gathered at once; others one by one.

The file has no name, so the system removes it when the process ends, whatever ends it. It is read and written, not
mapped: a full disk under a mapped file ends the process without a word (SIGBUS), and pages that were read would count
as the process's memory.
"""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.errors import ConfigError, DistrlError, StoreError
from distrl.policy.feature_rows import NOWHERE, FeatureRows, Handles

LOG = logging.getLogger("distrl.policy.feature_store")

BOUND, FOLDER = "learner.features_mb", "learner.features_directory"
"""The settings."""

BLOCK: Final = 4096
"""Places in the file are multiples of this, so that features of about one size can take each other's places."""


class FeatureFileError(DistrlError):
    """What was written to the file cannot be read back. Not a StoreError, after which the update would be tried
    again."""


class _Place(NamedTuple):
    """Of a feature in the file."""

    offset: int
    shape: torch.Size
    dtype: torch.dtype


class FeatureStore:
    """Tensors by name. most_bytes: held in memory. directory: of the file; None is the system's temporary one.

    Raises ConfigError where `directory` is given and cannot be written. Used by one thread.
    """

    def __init__(self, most_bytes: int, directory: Path | None = None) -> None:
        self._most_bytes, self._directory = most_bytes, directory
        self._rows: FeatureRows | None = None
        """Made for the first feature."""
        self._handles: dict[str, int] = {}
        self._held: dict[str, Tensor] = {}
        """What is in memory and in no row."""
        self._places: dict[str, _Place] = {}
        self._loose_bytes = 0
        """Of `_held`."""
        self.file_bytes = 0
        """Length of the file: the most that it ever held."""
        self._free: dict[int, list[int]] = {}
        self._file: int | None = None if directory is None else self._opened()

    def __len__(self) -> int:
        return len(self._handles) + len(self._held) + len(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._handles or name in self._held or name in self._places

    def names(self) -> set[str]:
        return {*self._handles, *self._held, *self._places}

    @property
    def held_bytes(self) -> int:
        """In memory, with rows that are free now."""
        return self._loose_bytes + (self._rows.nbytes if self._rows is not None else 0)

    @property
    def in_file(self) -> int:
        """How many lie in the file."""
        return len(self._places)

    def put(self, name: str, value: Tensor) -> None:
        """Keep `value` under a new name. Raises StoreError where the file cannot take it; nothing is kept then."""
        if not self.hold(name, value):
            self._places[name] = _Place(self._write(_bytes(value)), value.shape, value.dtype)

    def hold(self, name: str, value: Tensor) -> bool:
        """Keep `value` under a new name where memory has room for it; returns whether it had."""
        left = self._most_bytes - self.held_bytes
        if self._rows is None and 0 < value.nbytes <= left:
            self._rows = self._reserved(value)
        if self._rows is not None and (handle := self._rows.put(value, left)):
            self._handles[name] = handle
        elif value.nbytes <= left:
            self._held[name] = value
            self._loose_bytes += value.nbytes
        else:
            return False
        return True

    def get(self, name: str) -> Tensor:
        """The tensor, bit for bit; to be read until its name is dropped. Raises KeyError for an unknown name and
        FeatureFileError."""
        if (handle := self._handles.get(name)) is not None and self._rows is not None:
            return self._rows.get(handle)
        held = self._held.get(name)
        return self._read(self._places[name]) if held is None else held

    def handles(self, names: Iterable[str]) -> Handles:
        """(n,) under which `gather` finds each; NOWHERE for what it does not."""
        return np.array([self._handles.get(name, NOWHERE) for name in names], dtype=np.int64)

    def holds(self, handles: Handles) -> NDArray[np.bool_]:
        """(n,) whether `gather` finds what each handle was given for."""
        return np.zeros(len(handles), dtype=bool) if self._rows is None else self._rows.holds(handles)

    def gather(self, handles: Handles) -> Tensor | None:
        """(n, *shape) copies of what the handles were given for; None where one of them is not, or no longer, held."""
        if self._rows is None or not self._rows.holds(handles).all():
            return None
        return self._rows.gather(handles)

    def drop(self, name: str) -> None:
        """Forget a name; its place is free again. Raises KeyError for an unknown one."""
        if (handle := self._handles.pop(name, None)) is not None and self._rows is not None:
            self._rows.drop(handle)
            return
        if (held := self._held.pop(name, None)) is not None:
            self._loose_bytes -= held.nbytes
            return
        place = self._places.pop(name)
        self._free.setdefault(_room(place.shape.numel() * place.dtype.itemsize), []).append(place.offset)

    def _reserved(self, first: Tensor) -> FeatureRows | None:
        """The array for features like `first`; None if the system does not reserve so much memory, and then each
        feature has its own."""
        try:
            return FeatureRows(first, self._most_bytes)
        except MemoryError:
            return None

    def _write(self, data: NDArray[Any]) -> int:
        """The offset at which `data` was written."""
        if self._file is None:
            self._file = self._opened()
        room = _room(data.nbytes)
        free = self._free.get(room)
        offset = free[-1] if free else self.file_bytes
        left, at = data.data, offset
        try:
            while left:
                written = os.pwrite(self._file, left, at)
                left, at = left[written:], at + written
        except OSError as error:
            raise StoreError(
                FOLDER,
                f"{self._folder} cannot take {data.nbytes / 1e6:.1f} MB more of features of screens "
                f"({error.strerror}); {self.file_bytes / 1e6:,.0f} MB are there",
                f"make room, or set {FOLDER} to a folder with more; a higher {BOUND} keeps more in memory",
            ) from None
        if free:
            free.pop()
        else:
            self.file_bytes = offset + room
        return offset

    def _read(self, place: _Place) -> Tensor:
        assert self._file is not None
        found = torch.empty(place.shape, dtype=place.dtype)
        left, at = _bytes(found).data, place.offset
        try:
            while left:
                read = os.preadv(self._file, [left], at)
                if not read:
                    raise OSError(0, "it ends too soon")
                left, at = left[read:], at + read
        except OSError as error:
            raise FeatureFileError(
                FOLDER,
                f"features of screens cannot be read back from {self._folder} ({error.strerror})",
                f"set {FOLDER} to a folder on a sound disk and start again: nothing is lost",
            ) from None
        return found

    @property
    def _folder(self) -> str:
        return str(self._directory or tempfile.tempdir or "the system's temporary folder")

    def _opened(self) -> int:
        """The descriptor of a new file. Raises ConfigError."""
        try:
            if self._directory is not None:
                self._directory.mkdir(parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=self._directory, buffering=0)  # noqa: SIM115 - finalize closes it
        except OSError as error:
            raise ConfigError(
                FOLDER, f"{self._folder} cannot be written ({error.strerror})", "name a folder that can be written"
            ) from None
        LOG.info("features of screens beyond %s=%d lie in a file in %s", BOUND, self._most_bytes >> 20, self._folder)
        weakref.finalize(self, file.close)
        return file.fileno()


def _bytes(value: Tensor) -> NDArray[Any]:
    """The tensor's bytes; they share its memory where it is contiguous."""
    flat: NDArray[Any] = value.detach().contiguous().flatten().view(torch.uint8).numpy()
    return flat


def _room(nbytes: int) -> int:
    """Whole blocks."""
    return -(-nbytes // BLOCK) * BLOCK
