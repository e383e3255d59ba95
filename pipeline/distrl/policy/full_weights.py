"""All weights of a part of a model as what is trained and shipped (`policy.trains=all`), in place of LoRA."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn

from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.adapters import refuse_unfit

BASE: Final = "base"
"""All metadata is one text under this key: safetensors writes several keys in a random order."""
_HINT: Final = "start a new run for another base model or another policy.trains"


def holds_whole_weights(data: bytes) -> bool:
    """Whether a version's bytes are of `FullWeights`; of a LoRA adapter and of anything else they are not."""
    try:
        return bool(_metadata(data).keys() == {BASE})
    except (ValueError, AttributeError, RecursionError, struct.error):
        return False


def refuse_half_precision(settings: PolicySettings) -> None:
    """Raises PolicyError where weights that are trained whole would be of half precision."""
    if settings.precision == "bfloat16" and settings.trains == "all":
        raise PolicyError(
            "policy.precision", "is bfloat16, and weights that are trained are float32", "set policy.trains=lora"
        )


class FullWeights:
    """The parameters of `module` whose names are `trained`; all others are frozen. Equal weights give equal bytes."""

    def __init__(self, module: nn.Module, trained: Mapping[str, nn.Parameter], base_sha256: str) -> None:
        paths = {id(parameter): path for path, parameter in module.named_parameters()}
        self._module = module
        self._paths = {name: paths[id(parameter)] for name, parameter in sorted(trained.items())}
        self._metadata = {BASE: f"sha256:{base_sha256}"}
        chosen = {id(parameter) for parameter in trained.values()}
        for parameter in module.parameters():
            parameter.requires_grad_(id(parameter) in chosen)

    def parameters(self) -> dict[str, nn.Parameter]:
        """By the model's own names, in a fixed order. Asked for anew each time: on some devices `Module.to` replaces
        them."""
        return {name: self._module.get_parameter(path) for name, path in self._paths.items()}

    def to_bytes(self) -> bytes:
        """As a version ships it."""
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.parameters().items()}
        return save_tensors(tensors, self._metadata)

    def load(self, data: bytes) -> None:
        """Take the weights in `data`, all of them or, where they are refused, none. Raises PolicyError as
        `LoraAdapter.load` does."""
        try:
            tensors = load_tensors(data)
            found = _metadata(data)
        except (SafetensorError, ValueError, struct.error) as error:
            raise PolicyError("adapter", f"is no weights of this project ({error!r:.200})", _HINT) from None
        if found != self._metadata:
            raise PolicyError("adapter", f"belongs to {found!r:.100}, the model is {self._metadata[BASE]}", _HINT)
        if wrong := sorted(self._paths.keys() ^ tensors.keys()):
            raise PolicyError("adapter", f"holds other layers than the model: {', '.join(wrong[:3])}…", _HINT)
        parameters = self.parameters()
        for name, parameter in parameters.items():
            refuse_unfit(name, tensors[name], parameter)
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(tensors[name])


def _metadata(data: bytes) -> Any:
    """What the header of a safetensors file says beside its tensors. Raises ValueError, AttributeError, struct.error
    for what is no such file."""
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]).get("__metadata__")
