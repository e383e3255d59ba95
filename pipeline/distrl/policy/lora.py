"""LoRA on the T5 part (through peft), and an adapter as bytes: what a version ships.

An adapter is a safetensors file of the LoRA tensors alone. Its metadata names the base model it belongs to, the rank,
alpha and targets; loading refuses any other. Equal tensors give equal bytes, so a version's hash is reproducible.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, Final

import torch
from peft import LoraConfig, inject_adapter_in_model
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from distrl.config import Policy
from distrl.errors import PolicyError
from distrl.policy.model import AutoUIModel

_METADATA: Final = "distrl"
"""All metadata is one JSON text under this key: safetensors writes several keys in a random order."""

_HINT: Final = "start a new run for another base model or other policy.lora_* settings"


def attach(model: AutoUIModel, settings: Policy, seed: int = 0) -> AutoUIModel:
    """Put LoRA on `model.t5`, freeze everything else, and return `model`.

    The initial adapter changes nothing (B = 0) and is a pure function of `seed`; the caller's RNG is left alone.
    Raises PolicyError where no layer has a target's name, or where `model` has an adapter already.
    """
    if lora_parameters(model):
        raise PolicyError("policy", "the model has an adapter already", "load the base model afresh")
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules=list(settings.lora_targets),
        lora_dropout=0.0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(config, model.t5)
        except ValueError as error:
            raise PolicyError("policy.lora_targets", str(error), "name layers of T5: q, k, v, o, wi, wo") from None
    trainable = {id(parameter) for parameter in lora_parameters(model).values()}
    for parameter in model.parameters():
        parameter.requires_grad_(id(parameter) in trainable)
    model.lora = settings
    return model


def lora_parameters(model: AutoUIModel) -> dict[str, nn.Parameter]:
    """The adapter's parameters by name, in a fixed order."""
    return {
        name.replace(".default.", "."): parameter
        for name, parameter in sorted(model.named_parameters())
        if ".lora_A." in name or ".lora_B." in name
    }


def adapter_bytes(model: AutoUIModel) -> bytes:
    """The adapter of `model` as a safetensors file. Equal weights give equal bytes."""
    tensors = {name: value.detach().contiguous() for name, value in lora_parameters(model).items()}
    return save_tensors(tensors, {_METADATA: json.dumps(_identity(model), sort_keys=True)})


def load_adapter(model: AutoUIModel, data: bytes) -> None:
    """Give `model` the adapter in `data`, all of it or, where it is refused, none of it.

    Raises PolicyError for bytes that are no adapter, an adapter of another base model or of other settings, tensors
    of other names, shapes or types, and weights that are not finite.
    """
    tensors, found, expected = *_parse(data), _identity(model)
    for key, value in expected.items():
        if found.get(key) != value:
            raise PolicyError("adapter", f"its {key} is {found.get(key)!r}, the model's is {value!r}", _HINT)
    parameters = lora_parameters(model)
    if wrong := sorted(parameters.keys() ^ tensors.keys()):
        raise PolicyError("adapter", f"holds other layers than the model: {', '.join(wrong[:3])}…", _HINT)
    for name, parameter in parameters.items():
        tensor = tensors[name]
        if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
            raise PolicyError(
                "adapter", f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {tuple(parameter.shape)}", _HINT
            )
        if not _finite(tensor):
            raise PolicyError("adapter", f"{name} is not finite", "roll back to an older version")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def _finite(tensor: Tensor) -> bool:
    """Whether every element is a number. NaN is both extremes of what holds one, so one pass and no copy tell."""
    return not tensor.numel() or all(bool(torch.isfinite(each)) for each in torch.aminmax(tensor))


def _identity(model: AutoUIModel) -> dict[str, Any]:
    settings = model.lora
    if settings is None:
        raise PolicyError("policy", "the model has no adapter", "attach one first")
    return {
        "base_model_sha256": model.base_sha256,
        "lora_rank": settings.lora_rank,
        "lora_alpha": settings.lora_alpha,
        "lora_targets": sorted(settings.lora_targets),
    }


def _parse(data: bytes) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        tensors = load_tensors(data)
        (length,) = struct.unpack("<Q", data[:8])
        metadata = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][_METADATA])
    except (SafetensorError, ValueError, KeyError, TypeError, struct.error) as error:
        raise PolicyError("adapter", f"is no adapter of this project ({error!r})", _HINT) from None
    if not isinstance(metadata, dict):
        raise PolicyError("adapter", "its metadata is no mapping", _HINT)
    return tensors, metadata
