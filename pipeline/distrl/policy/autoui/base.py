"""A base model in memory, read from its directory (directory.py) and written to one. Nothing is unpickled.

Any size of the architecture loads: a full-size AutoUI-like base is the same directory with e.g. "shape": {"vocabulary":
32128, "image_width": 512, "image_height": 1024, "tower": [64, 128, 256, 512], "d_model": 768, "d_ff": 3072, "layers":
12, "heads": 12, "dropout": 0.1}, its own words, and weights of those shapes.
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

from distrl.errors import PolicyError
from distrl.policy.autoui.directory import FORMAT, WEIGHTS, described, tokenizer
from distrl.policy.autoui.encoder_decoder import EncoderDecoder
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import AutoUITokenizer, WordTokenizer
from distrl.policy.files import CONFIG, HINT, identity, read

LORA_TARGETS: Final = ("q", "v")


@dataclass(frozen=True, slots=True)
class Base:
    """A base model in memory: frozen, in evaluation mode, with its tokenizer.

    lora_targets: last names of the layers of its T5 that LoRA goes on, where no setting says others.
    """

    model: EncoderDecoder
    tokenizer: AutoUITokenizer
    sha256: str
    lora_targets: tuple[str, ...] = LORA_TARGETS


def load_base(directory: Path) -> Base:
    """The base model in `directory`.

    Raises PolicyError where a file is missing or unreadable, or the weights are not those that config.json names.
    """
    config_bytes, weights = read(directory / CONFIG), read(directory / WEIGHTS)
    where = str(directory / CONFIG)
    config, weights_sha256 = described(config_bytes, directory), hashlib.sha256(weights)
    if config.get("weights_sha256") != weights_sha256.hexdigest():
        raise PolicyError(
            str(directory / WEIGHTS), f"sha256 is {weights_sha256.hexdigest()}, not what config.json names", HINT
        )
    words = tokenizer(config, directory)
    try:
        shape = Shape(**{**config["shape"], "tower": tuple(config["shape"]["tower"])})
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced: leave the caller's RNG alone
            model = AutoUIModel(shape)
    except (KeyError, TypeError, ValueError, ZeroDivisionError, RuntimeError) as error:
        raise PolicyError(where, f"does not describe a base model ({error!r})", HINT) from None
    if shape.vocabulary != len(words.tokens):
        raise PolicyError(where, f"{shape.vocabulary} embeddings for {len(words.tokens)} tokens", HINT)
    _fill(model, _tensors(directory, weights), str(directory / WEIGHTS))
    model.vision.to(memory_format=torch.channels_last)  # as its pixels are: its passes are shorter, with equal bits
    sha256 = identity([hashlib.sha256(config_bytes).digest(), weights_sha256.digest()])
    return Base(model.requires_grad_(False).eval(), words, sha256)


def save_base(directory: Path, model: AutoUIModel, words: WordTokenizer, recipe: Mapping[str, Any]) -> str:
    """Write `model` as a base model and return its identity. The same weights always give the same bytes."""
    weights = save_tensors({name: value.detach().contiguous() for name, value in model.named_parameters()})
    config = {
        "format": FORMAT,
        "shape": asdict(model.shape),
        "grid": {"columns": words.columns, "rows": words.rows},
        "prompt_length": words.prompt_length,
        "action_length": words.action_length,
        "words": list(words.words),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    config_bytes = (json.dumps(config, indent=1) + "\n").encode()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / WEIGHTS).write_bytes(weights)
        (directory / CONFIG).write_bytes(config_bytes)
        (directory / "recipe.json").write_text(json.dumps(dict(recipe), indent=1) + "\n")
    except OSError as error:
        raise PolicyError(str(directory), f"cannot be written ({error})", "name a writable directory") from None
    return identity([hashlib.sha256(config_bytes).digest(), hashlib.sha256(weights).digest()])


def _tensors(directory: Path, weights: bytes) -> dict[str, Tensor]:
    try:
        return load_tensors(weights)
    except (SafetensorError, ValueError, KeyError) as error:
        raise PolicyError(str(directory / WEIGHTS), f"is no safetensors file ({error})", HINT) from None


def _fill(model: AutoUIModel, tensors: Mapping[str, Tensor], where: str) -> None:
    parameters = dict(model.named_parameters())
    if wrong := sorted(parameters.keys() ^ tensors.keys()):
        raise PolicyError(where, f"has other parameters than config.json describes: {', '.join(wrong[:3])}…", HINT)
    with torch.no_grad():
        for name, parameter in parameters.items():
            if tensors[name].shape != parameter.shape:
                raise PolicyError(where, f"{name} is {tuple(tensors[name].shape)}, not {tuple(parameter.shape)}", HINT)
            parameter.copy_(tensors[name])
