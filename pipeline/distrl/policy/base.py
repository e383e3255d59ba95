"""The base model: a directory with `config.json` and `model.safetensors`, and its identity.

    config.json        {"format", "shape": {...}, "grid": {"columns", "rows"}, "prompt_length", "action_length",
                        "words": [...], "weights_sha256"}
    model.safetensors  every parameter of AutoUIModel once, float32, under its name in the module
    recipe.json        how it was made; for people, never read here

The identity is sha256 over the sha256 of both files: an adapter belongs to exactly one vocabulary and one set of
weights. Nothing is unpickled. Any size of the architecture loads: a full-size AutoUI-like base is the same directory
with e.g. "shape": {"vocabulary": 32128, "image_width": 512, "image_height": 1024, "tower": [64, 128, 256, 512],
"d_model": 768, "d_ff": 3072, "layers": 12, "heads": 12, "dropout": 0.1}, its own words, and weights of those shapes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from distrl.base_identity import SHIPPED, identity
from distrl.errors import PolicyError
from distrl.policy.model import AutoUIModel, Shape
from distrl.policy.vocabulary import Codec

FORMAT: Final = "distrl-autoui/1"

_HINT: Final = "name a whole base model in policy.base_model, or unset it to use the shipped one"


@dataclass(frozen=True, slots=True)
class Base:
    """A base model in memory: frozen, in evaluation mode, with the codec of its own words."""

    model: AutoUIModel
    codec: Codec
    sha256: str


def load_base(path: Path | None = None) -> Base:
    """The base model in the directory `path`, or the shipped one.

    Raises PolicyError where a file is missing or unreadable, or the weights are not those that config.json names.
    """
    directory = SHIPPED if path is None else path
    config_bytes, weights = _read(directory / "config.json"), _read(directory / "model.safetensors")
    where = str(directory / "config.json")
    config, weights_sha256 = _parse(where, config_bytes), hashlib.sha256(weights).hexdigest()
    if config.get("weights_sha256") != weights_sha256:
        raise PolicyError(
            str(directory / "model.safetensors"), f"sha256 is {weights_sha256}, not what config.json names", _HINT
        )
    try:
        codec = Codec(
            config["words"],
            columns=config["grid"]["columns"],
            rows=config["grid"]["rows"],
            prompt_length=config["prompt_length"],
            action_length=config["action_length"],
        )
        shape = Shape(**{**config["shape"], "tower": tuple(config["shape"]["tower"])})
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced: leave the caller's RNG alone
            model = AutoUIModel(shape)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, RuntimeError) as error:
        raise PolicyError(where, f"does not describe a base model ({error!r})", _HINT) from None
    if shape.vocabulary != len(codec.tokens):
        raise PolicyError(where, f"{shape.vocabulary} embeddings for {len(codec.tokens)} tokens", _HINT)
    _fill(model, _tensors(directory, weights), str(directory / "model.safetensors"))
    model.base_sha256 = identity(config_bytes, weights)
    return Base(model.requires_grad_(False).eval(), codec, model.base_sha256)


def save_base(directory: Path, model: AutoUIModel, codec: Codec, recipe: Mapping[str, Any]) -> str:
    """Write `model` as a base model and return its identity. The same weights always give the same bytes."""
    weights = save_tensors({name: value.detach().contiguous() for name, value in model.named_parameters()})
    config = {
        "format": FORMAT,
        "shape": asdict(model.shape),
        "grid": {"columns": codec.columns, "rows": codec.rows},
        "prompt_length": codec.prompt_length,
        "action_length": codec.action_length,
        "words": list(codec.words),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    config_bytes = (json.dumps(config, indent=1) + "\n").encode()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "model.safetensors").write_bytes(weights)
        (directory / "config.json").write_bytes(config_bytes)
        (directory / "recipe.json").write_text(json.dumps(dict(recipe), indent=1) + "\n")
    except OSError as error:
        raise PolicyError(str(directory), f"cannot be written ({error})", "name a writable directory") from None
    return identity(config_bytes, weights)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise PolicyError(str(file), f"cannot be read ({error.strerror})", _HINT) from None


def _parse(where: str, content: bytes) -> dict[str, Any]:
    try:
        config = json.loads(content)
    except ValueError as error:
        raise PolicyError(where, f"is no JSON ({error})", _HINT) from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise PolicyError(where, f"is not of the format {FORMAT}", _HINT)
    return config


def _tensors(directory: Path, weights: bytes) -> dict[str, Tensor]:
    try:
        return load_tensors(weights)
    except (SafetensorError, ValueError, KeyError) as error:
        raise PolicyError(str(directory / "model.safetensors"), f"is no safetensors file ({error})", _HINT) from None


def _fill(model: AutoUIModel, tensors: Mapping[str, Tensor], where: str) -> None:
    parameters = dict(model.named_parameters())
    if wrong := sorted(parameters.keys() ^ tensors.keys()):
        raise PolicyError(where, f"has other parameters than config.json describes: {', '.join(wrong[:3])}…", _HINT)
    with torch.no_grad():
        for name, parameter in parameters.items():
            if tensors[name].shape != parameter.shape:
                raise PolicyError(where, f"{name} is {tuple(tensors[name].shape)}, not {tuple(parameter.shape)}", _HINT)
            parameter.copy_(tensors[name])
