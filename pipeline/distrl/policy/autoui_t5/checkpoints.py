"""Reads the weights of published checkpoints: safetensors, or pickles of which only tensors are unpickled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from distrl.errors import PolicyError
from distrl.policy.files import parsed, read

FORMS: Final = ("model.safetensors", "pytorch_model.bin")
"""Names of the weights in a checkpoint, or with `.index.json` of what says in which files they lie."""


def tensors_of(directory: Path, wanted: Callable[[str], bool]) -> dict[str, Tensor]:
    """The tensors of a checkpoint whose names are `wanted`. Raises PolicyError."""
    found: dict[str, Tensor] = {}
    for file in _files(directory):
        found |= {name: value for name, value in _load(file).items() if wanted(name)}
    return found


def _files(directory: Path) -> list[Path]:
    for form in FORMS:
        if (directory / form).is_file():
            return [directory / form]
        index = directory / f"{form}.index.json"
        if index.is_file():
            listed = parsed(read(index), index).get("weight_map")
            names = sorted(set(map(str, listed.values()))) if isinstance(listed, dict) else []
            if not names or any(Path(name).name != name for name in names):
                raise PolicyError(str(index), "names no files beside it", "download the checkpoint again")
            return [directory / name for name in names]
    raise PolicyError(str(directory), f"has no weights ({' or '.join(FORMS)})", "name a checkpoint's directory")


def _load(file: Path) -> dict[str, Tensor]:
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        found: Any = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError) as error:
        raise PolicyError(str(file), f"cannot be read ({error!s:.200})", "download the checkpoint again") from None
    except Exception as error:  # the unpickler refuses code, and broken pickles raise anything
        raise PolicyError(str(file), f"holds more than tensors ({error!s:.200})", "do not trust this file") from None
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise PolicyError(str(file), "is no mapping from names to tensors", "name a checkpoint's directory")
    return found
