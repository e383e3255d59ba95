"""A second device, "second:0", on machines that have none: it computes on the CPU and refuses what lies elsewhere.

Code that forgets to move a tensor fails on it as it would on a GPU, and what is read must be brought back first.
torch's own hooks for backends written in Python make it a device like any other, with gradients. It needs no GPU and
proves nothing about one's kernels.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME: Final = "second"
CPU: Final = torch.device("cpu")
MIXES: Final = ("aten::_to_copy", "aten::copy_", "aten::index", "aten::_index_put_impl_")
"""What may see tensors of both devices: moves, and indices, which a GPU takes from the CPU, too."""


class There(torch.Tensor):
    """A tensor on the second device. here: what it holds."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> There:
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            here.shape,
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=DEVICE,
        )
        made.here = here
        return made

    def __init__(self, here: Tensor) -> None:
        """Made by __new__."""

    def tolist(self) -> Any:
        """As of a tensor on a GPU; torch refuses it for classes of their own, and their text."""
        return self.here.tolist()

    def __repr__(self, **_: Any) -> str:
        return f"{self.here!r} on {DEVICE}"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


class SecondDevice(TorchDispatchMode):
    """Within, torch can make tensors on `DEVICE`."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _computed(func, args, kwargs or {})


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    there = [each for each in tensors if isinstance(each, There)]
    strangers = [each for each in tensors if not isinstance(each, There) and each.dim()]  # as on a GPU, numbers may mix
    if there and strangers and func._schema.name not in MIXES:
        raise RuntimeError(f"Expected all tensors to be on the same device, but {func} has some on {NAME} and on cpu")
    asked = kwargs.get("device")
    where = (DEVICE if there else CPU) if asked is None else torch.device(asked)
    given = {**kwargs, "device": CPU} if asked is not None else kwargs
    found = func(*tree_map(_here, args), **tree_map(_here, given))
    if func._schema.is_mutable and there:  # in place: who was given keeps its name
        return args[0] if isinstance(found, Tensor) else tree_map(_there, found)
    return tree_map(_there, found) if where.type == NAME else found


def _here(value: Any) -> Any:
    return value.here if isinstance(value, There) else value


def _there(value: Any) -> Any:
    return There(value) if isinstance(value, Tensor) else value


def _empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Tensor:
    return There(torch.empty_strided(size, stride, dtype=dtype))


def _empty(size: Any, dtype: Any = None, **_: Any) -> Tensor:
    return There(torch.empty(size, dtype=dtype))


def _copy_from(source: Tensor, to: Tensor, non_blocking: bool = False) -> Tensor:
    _here(to).copy_(_here(source))
    return to


def _number(of: Tensor) -> Any:
    return _here(of).item()


_setup_privateuseone_for_python_backend(NAME)
DEVICE: Final = torch.device(NAME, 0)
_LIBRARY: Final = torch.library.Library("aten", "IMPL")
for _name, _made in (
    ("empty_strided", _empty_strided),
    ("empty.memory_format", _empty),
    ("_copy_from", _copy_from),
    ("_local_scalar_dense", _number),
):
    _LIBRARY.impl(_name, _made, "PrivateUse1")
