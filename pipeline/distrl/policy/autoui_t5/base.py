"""A base model of this kind in memory. Nothing is unpickled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoImageProcessor

from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.autoui.base import Base
from distrl.policy.autoui_t5.directory import MAKE, PIXELS, VISION, WEIGHTS, described, files, identity
from distrl.policy.autoui_t5.model import AutoUIT5, Pixels, published_name
from distrl.policy.autoui_t5.tokenizer import T5Tokenizer
from distrl.policy.files import CONFIG, HINT

LORA_TARGETS: Final = ("q", "k", "v", "o")
NAMED: Final = 4
"""Most names of parameters in an error."""


def load_base(directory: Path, settings: PolicySettings) -> Base:
    """Raises PolicyError where a file is missing, unreadable or not what config.json describes; it names what does not
    fit."""
    files(directory)
    before = identity(directory)  # policy_of looks again once all is loaded
    with torch.device("meta"):  # weights are loaded, not drawn
        model = described_model(*described(directory), str(directory / CONFIG))
    fill(model, _tensors(directory / WEIGHTS), _tensors(directory / VISION), str(directory))
    model.pixels = _pixels(directory, cast(int, model.vision.config.image_size))
    tokenizer = T5Tokenizer(directory, settings)
    if tokenizer.size > model.t5.config.vocab_size:
        raise PolicyError(
            str(directory),
            f"its tokenizer has {tokenizer.size} tokens, and the model {model.t5.config.vocab_size} embeddings",
            "name the tokenizer that the checkpoint was trained with",
        )
    model.limit(tokenizer.size)
    return Base(model.requires_grad_(False).eval(), tokenizer, before, LORA_TARGETS)


def described_model(t5: Mapping[str, Any], vision: Mapping[str, Any], where: str) -> AutoUIT5:
    """The network that settings describe, on torch's current device. Raises PolicyError."""
    try:
        return AutoUIT5(t5, vision)
    except Exception as error:  # the library checks settings with errors of its own
        raise PolicyError(where, f"does not describe a T5 with an image encoder ({error!r:.200})", HINT) from None


def fill(model: AutoUIT5, language: Mapping[str, Tensor], vision: Mapping[str, Tensor], where: str) -> None:
    """Give `model` its weights, in float32. language: T5 and fusion under published names.

    Raises PolicyError, which names what is missing, what there is no place for, and what has another shape.
    """
    has_own_head = model.t5.lm_head.weight is not model.t5.shared.weight
    parts = {"vision.": (vision, VISION), "": (language, WEIGHTS)}
    for prefix, (tensors, file) in parts.items():
        wanted = {
            name: parameter
            for name, parameter in model.named_parameters()
            if name.startswith("vision.") == (prefix == "vision.")
        }
        names = {name: name.removeprefix("vision.") if prefix else published_name(name) for name in wanted}
        refuse_misfits(tensors, {names[name]: tuple(each.shape) for name, each in wanted.items()}, f"{where}: {file}")
        for name in wanted:
            owner, _, leaf = name.rpartition(".")
            # a copy: the library maps the file, so that who writes to it would change a running policy
            value = nn.Parameter(tensors[names[name]].to(torch.float32, copy=True), requires_grad=False)
            setattr(model.get_submodule(owner), leaf, value)
    if not has_own_head:
        model.t5.lm_head.weight = model.t5.shared.weight
    every = (*model.named_parameters(remove_duplicate=False), *model.named_buffers())
    if empty := [name for name, each in every if each.is_meta]:  # it would be computed with whatever is in memory
        raise PolicyError(where, f"leaves {_first(empty)} without numbers", MAKE)


def refuse_misfits(tensors: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]], where: str) -> None:
    """Raises PolicyError unless `tensors` are those of `shapes`, by name."""
    wrong = [
        f"{name} is {tuple(tensors[name].shape)}, not {shape}"
        for name, shape in sorted(shapes.items())
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    found = {
        "lacks": sorted(shapes.keys() - tensors.keys()),
        "has no use for": sorted(tensors.keys() - shapes.keys()),
        "does not fit where": wrong,
    }
    if problems := "; ".join(f"{what} {_first(names)}" for what, names in found.items() if names):
        raise PolicyError(where, problems, MAKE)


def _first(names: list[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _tensors(file: Path) -> dict[str, Tensor]:
    try:
        return load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise PolicyError(str(file), f"is no safetensors file ({error})", HINT) from None


def _pixels(directory: Path, side: int) -> Pixels:
    """The image processor of `directory`, which must make squares of `side` pixels. Raises PolicyError."""
    try:
        library = cast(Any, AutoImageProcessor)
        # Pillow's resizing gives the same bytes on every machine: worker and learner need not be of one kind
        processor = library.from_pretrained(directory, local_files_only=True, trust_remote_code=False, backend="pil")
        found = processor(images=[Image.new("RGB", (2 * side, side))], return_tensors="pt")["pixel_values"]
    except Exception as error:  # what a stranger's files raise can be anything
        raise PolicyError(str(directory / PIXELS), f"is no image processor ({error!r:.200})", MAKE) from None
    if tuple(found.shape) != (1, 3, side, side):
        raise PolicyError(
            str(directory / PIXELS), f"makes images of {tuple(found.shape[2:])}, and the encoder takes {side}", MAKE
        )

    def pixels(picture: Image.Image) -> Tensor:
        return cast(Tensor, processor(images=[picture], return_tensors="pt")["pixel_values"])

    return pixels
