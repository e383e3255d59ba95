"""LoRA through PEFT, and an adapter as bytes: what a version ships.

An adapter is PEFT's `adapter_model.safetensors`, with PEFT's names of the tensors. What `adapter_config.json` says
stands in the file's metadata, so that one hash covers both; `write_peft` writes the two as PEFT reads them. Loading
refuses an adapter of another base model or of other settings. Equal tensors give equal bytes, so that a version's hash
is reproducible: what changes from one release of PEFT to the next is left out of the config.
"""

from __future__ import annotations

import json
import logging
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from peft import LoraConfig, get_peft_model_state_dict, inject_adapter_in_model, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from distrl.config import PolicySettings
from distrl.errors import PolicyError

LOG = logging.getLogger("distrl.policy.adapters")

WEIGHTS, CONFIG_FILE = "adapter_model.safetensors", "adapter_config.json"
"""PEFT's names of its files."""
OLDER_WEIGHTS = "adapter_model.bin"
"""As older versions of PEFT name it."""
CONFIG: Final = "adapter_config"
"""All metadata is one JSON text under this key: safetensors writes several keys in a random order."""
PREFIX: Final = "base_model.model."
"""PEFT's prefix of each tensor's name."""
BASE: Final = "base_model_name_or_path"

_HINT: Final = "start a new run for another base model or other policy.lora_* settings"


class LoraAdapter:
    """LoRA on the layers `targets` of `module`, whole names or last parts; everything else of it is frozen.

    A fresh one changes nothing (B = 0) and is a pure function of `seed`; the caller's random numbers are left alone.
    base_sha256: the base model that it belongs to. Raises PolicyError where no layer has a target's name, or where
    `module` has an adapter already; logs targets that no layer has.
    """

    def __init__(
        self, module: nn.Module, targets: Sequence[str], settings: PolicySettings, base_sha256: str, seed: int
    ) -> None:
        if hasattr(module, "peft_config"):
            raise PolicyError("policy", "the model has an adapter already", "load the base model afresh")
        names = [f".{name}" for name, _ in module.named_modules()]
        missing = [target for target in targets if not any(name.endswith(f".{target}") for name in names)]
        if missing and len(missing) < len(targets):  # no error, as a run may have begun so
            LOG.warning("there is no layer %s, as policy.lora_targets names it", ", ".join(missing))
        config = LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            target_modules=list(targets),
            lora_dropout=0.0,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                inject_adapter_in_model(config, module)
            except ValueError as error:
                raise PolicyError("policy.lora_targets", str(error), f"name layers of {_layers(module)}") from None
        self._module = module
        shipped = get_peft_model_state_dict(module, save_embedding_layers=False)
        if other := sorted(shipped.keys() ^ self.parameters().keys()):
            raise PolicyError(
                "policy.lora_targets",
                f"names what is no linear layer ({other[0]})",
                f"name layers of {_layers(module)}",
            )
        self._config: Mapping[str, Any] = {
            **_identifying(settings, base_sha256),
            "target_modules": sorted(targets),
            "lora_dropout": 0.0,
            "bias": "none",
            "inference_mode": True,
        }
        trained = {id(parameter) for parameter in self.parameters().values()}
        for parameter in module.parameters():
            parameter.requires_grad_(id(parameter) in trained)

    def parameters(self) -> dict[str, nn.Parameter]:
        """The adapter's parameters by PEFT's names, without its prefix, in a fixed order."""
        return {
            name.replace(".default.", "."): parameter
            for name, parameter in sorted(self._module.named_parameters())
            if ".lora_A." in name or ".lora_B." in name
        }

    def to_bytes(self) -> bytes:
        """As a version ships it. Equal weights give equal bytes."""
        found = get_peft_model_state_dict(self._module, save_embedding_layers=False)
        tensors = {f"{PREFIX}{name}": value.detach().cpu().contiguous() for name, value in found.items()}
        return save_tensors(tensors, {CONFIG: json.dumps(self._config, sort_keys=True)})

    def size(self) -> int:
        """Bytes of `to_bytes`, also where the parameters have shapes and no numbers."""
        tensors = {f"{PREFIX}{name}": torch.zeros(each.shape, device="cpu") for name, each in self.parameters().items()}
        return len(save_tensors(tensors, {CONFIG: json.dumps(self._config, sort_keys=True)}))

    def load(self, data: bytes) -> None:
        """Take the weights in `data`, all of them or, where they are refused, none.

        Raises PolicyError for bytes that are no adapter, an adapter of another base model or of other settings, tensors
        of other names, shapes or types, and weights that are not finite.
        """
        tensors, found = _parse(data)
        _refuse_other(found, self._config)
        parameters = {f"{PREFIX}{name}": parameter for name, parameter in self.parameters().items()}
        if wrong := sorted(parameters.keys() ^ tensors.keys()):
            raise PolicyError("adapter", f"holds other layers than the model: {', '.join(wrong[:3])}…", _HINT)
        for name, parameter in parameters.items():
            refuse_unfit(name, tensors[name], parameter)
        with torch.no_grad():
            set_peft_model_state_dict(self._module, tensors)


def check(data: bytes, settings: PolicySettings, base_sha256: str) -> None:
    """What can be checked of an adapter where no model is loaded. Raises PolicyError for bytes that are no adapter, one
    of another base model, rank or alpha, and weights that are not finite."""
    tensors, found = _parse(data)
    _refuse_other(found, _identifying(settings, base_sha256))
    for name, tensor in tensors.items():
        if tensor.dtype is not torch.float32:
            raise PolicyError("adapter", f"{name} is of {tensor.dtype}, and weights are float32", _HINT)
        _refuse_infinite(name, tensor)


def write_peft(data: bytes, directory: Path) -> None:
    """Write an adapter as the two files that `PeftModel.from_pretrained` reads; the weights' bytes are those given.

    Raises PolicyError for bytes that are no adapter, OSError where the directory cannot be written.
    """
    _, config = _parse(data)
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / CONFIG_FILE, (json.dumps(dict(config), indent=1, sort_keys=True) + "\n").encode())
    part = directory / f".{WEIGHTS}.new"
    _write(part, data)
    part.replace(directory / WEIGHTS)  # last, and whole: where they are, the adapter is


def _write(file: Path, data: bytes) -> None:
    """On disk when it returns: else a power cut may leave an empty file under its final name."""
    with file.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


def refuse_unfit(name: str, tensor: Tensor, parameter: nn.Parameter) -> None:
    """Raises PolicyError where `tensor` is not of the parameter's shape and type, or is not finite."""
    if tensor.shape != parameter.shape or tensor.dtype != parameter.dtype:
        raise PolicyError(
            "adapter", f"{name} is {tensor.dtype} {tuple(tensor.shape)}, not {tuple(parameter.shape)}", _HINT
        )
    _refuse_infinite(name, tensor)


def _refuse_infinite(name: str, tensor: Tensor) -> None:
    if not finite(tensor):
        raise PolicyError(
            "adapter", f"{name} is not finite", "use an older version; the learner that made it has diverged"
        )


def _identifying(settings: PolicySettings, base_sha256: str) -> dict[str, Any]:
    """What an adapter's config says of the base model and the settings that it belongs to."""
    return {
        "peft_type": "LORA",
        BASE: f"sha256:{base_sha256}",
        "r": settings.lora_rank,
        "lora_alpha": settings.lora_alpha,
    }


def _refuse_other(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    for key, value in wanted.items():
        if found.get(key) != value:
            raise PolicyError("adapter", f"its {key} is {found.get(key)!r:.80}, the model's is {value!r}", _HINT)


def finite(tensor: Tensor) -> bool:
    """Whether every element is finite. NaN propagates to the extremes, so one pass without a copy is enough."""
    return not tensor.numel() or all(bool(torch.isfinite(each)) for each in torch.aminmax(tensor))


def _layers(module: nn.Module) -> str:
    """The last names of the layers that LoRA can go on, which are what a target names."""
    return ", ".join(
        sorted({name.rpartition(".")[2] for name, each in module.named_modules() if isinstance(each, nn.Linear)})
    )


def _parse(data: bytes) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    try:
        tensors = load_tensors(data)
        (length,) = struct.unpack("<Q", data[:8])
        config = json.loads(json.loads(data[8 : 8 + length])["__metadata__"][CONFIG])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
        raise PolicyError("adapter", f"is no adapter of this project ({error!r})", _HINT) from None
    if not isinstance(config, dict):
        raise PolicyError("adapter", "its metadata is no mapping", _HINT)
    return tensors, config
