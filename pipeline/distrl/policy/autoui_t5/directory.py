"""The directory of a base model of this kind, which `distrl base-model autoui` makes. Needs no torch.

    config.json               {"format", "t5": as T5Config has it, "vision": as Blip2VisionConfig has it}
    model.safetensors         the T5 and the fusion, under the names of Auto-GUI's T5ForMultimodalGeneration
    vision.safetensors        the image encoder, under BLIP-2's names without "vision_model."
    preprocessor_config.json  how a screenshot becomes the image encoder's pixels
    tokenizer.json …          the T5's tokenizer

The identity is sha256 over the names of the files and what they hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from distrl.errors import PolicyError
from distrl.policy.files import CONFIG, HINT, identity_of, parsed, read

FORMAT: Final = "distrl-autoui-t5/1"
WEIGHTS, VISION, PIXELS, WORDS = (
    "model.safetensors",
    "vision.safetensors",
    "preprocessor_config.json",
    "tokenizer.json",
)
REQUIRED: Final = (CONFIG, WEIGHTS, VISION, PIXELS, WORDS)
OPTIONAL: Final = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Files of tokenizers, which some have."""
MAKE: Final = "make the directory with `distrl base-model autoui --checkpoint … --vision … --out …`"


def files(directory: Path) -> list[Path]:
    """Those that decide what the model does. Raises PolicyError for one that is missing."""
    for name in REQUIRED:
        if not (directory / name).is_file():
            what = "has no image encoder" if name in (VISION, PIXELS) else "is no whole base model"
            raise PolicyError(str(directory), f"{what}: there is no {name}", MAKE)
    return [directory / name for name in (*REQUIRED, *OPTIONAL) if (directory / name).is_file()]


def identity(directory: Path) -> str:
    """sha256 (hex). Raises PolicyError."""
    found = files(directory)
    names = json.dumps([path.name for path in found])
    return hashlib.sha256(f"{names} {identity_of(found)}".encode()).hexdigest()


def described(directory: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The settings of T5 and image encoder that config.json holds. Raises PolicyError."""
    config = parsed(read(directory / CONFIG), directory / CONFIG)
    t5, vision = config.get("t5"), config.get("vision")
    if config.get("format") != FORMAT or not isinstance(t5, dict) or not isinstance(vision, dict):
        raise PolicyError(str(directory / CONFIG), f"does not describe a base model of the format {FORMAT}", HINT)
    return t5, vision
