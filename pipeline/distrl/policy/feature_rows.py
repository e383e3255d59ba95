"""Features of one shape and type in one array, so that a minibatch of them is one gather.

A *handle* is what a caller keeps instead of a feature's name. It identifies the row, and shows whether the row still
holds what it held when the handle was given. No handle is given twice in a process, so a handle of another store is
never mistaken for one of this.
"""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Handles = NDArray[np.int64]
NOWHERE: Final = 0
"""The handle of what is in no row."""
_EMPTY: Final = -1
"""In place of the handle of a row that holds nothing: no handle is equal to it."""

_ROW_BITS: Final = 32
_MASK: Final = (1 << _ROW_BITS) - 1
_numbers = itertools.count(1)


class FeatureRows:
    """Tensors by handle. A row's memory is only used once something was put into it."""

    def __init__(self, like: Tensor, most_bytes: int) -> None:
        """like: has the shape and type of all tensors; not empty. most_bytes: of all rows. Raises MemoryError if the
        system does not even reserve them."""
        self.shape, self.dtype, self.row_bytes = like.shape, like.dtype, like.nbytes
        count = min(most_bytes // like.nbytes, _MASK)
        self._bytes = np.empty((count, like.nbytes), np.uint8)
        self._tensors = torch.from_numpy(self._bytes).view(like.dtype).view(count, *like.shape)
        self._arrays = _array(self._tensors)
        self._handles: Handles = np.zeros(count, np.int64)
        """(count,) the handle of what is in each row; 0 until one was. Not in the row that NOWHERE names."""
        self._handles[_row(NOWHERE)] = _EMPTY
        self._free: list[int] = []
        self._used = 0

    @property
    def nbytes(self) -> int:
        """Of all rows that were ever used."""
        return self._used * self.row_bytes

    def takes(self, value: Tensor, more_bytes: int) -> bool:
        """Whether `value` has the shape and type, and a row is free, or can be used for the first time with at most
        `more_bytes` of further memory."""
        room = bool(self._free) or (self._used < len(self._bytes) and self.row_bytes <= more_bytes)
        return room and value.shape == self.shape and value.dtype == self.dtype

    def put(self, value: Tensor, more_bytes: int) -> int:
        """The handle under which a copy of `value` is kept; NOWHERE where `takes` is not true of it."""
        if not self.takes(value, more_bytes):
            return NOWHERE
        if self._free:
            row = self._free.pop()
        else:
            row, self._used = self._used, self._used + 1
        self._arrays[row] = _array(value)
        handle = next(_numbers) << _ROW_BITS | row
        self._handles[row] = handle
        return handle

    def get(self, handle: int) -> Tensor:
        """The tensor itself: it is overwritten some time after it was dropped."""
        return self._tensors[_row(handle)]

    def drop(self, handle: int) -> None:
        self._handles[_row(handle)] = _EMPTY
        self._free.append(_row(handle))

    def holds(self, handles: Handles) -> NDArray[np.bool_]:
        """(n,) whether what each handle was given for is still there. handles: (n,), of any store."""
        found: NDArray[np.bool_] = self._handles.take(handles & _MASK, mode="clip") == handles
        return found

    def gather(self, handles: Handles) -> Tensor:
        """(n, *shape) a copy. `holds` must be true of all of them."""
        found = torch.from_numpy(self._bytes.take(handles & _MASK, axis=0))
        return found.view(self.dtype).view(len(handles), *self.shape)


def _row(handle: int) -> int:
    return handle & _MASK


def _array(value: Tensor) -> NDArray[Any]:
    """NumPy's view of a tensor, by which a row is copied at half the cost; of bfloat16, which NumPy lacks, its bits."""
    found: NDArray[Any] = (value.view(torch.int16) if value.dtype is torch.bfloat16 else value).detach().numpy()
    return found
