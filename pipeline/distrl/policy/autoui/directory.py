"""A base model's directory: `config.json` and `model.safetensors`. Needs no torch.

    config.json        {"format", "shape": {...}, "grid": {"columns", "rows"}, "prompt_length", "action_length",
                        "words": [...], "weights_sha256"}
    model.safetensors  every parameter of AutoUIModel once, float32, under its name in the module
    recipe.json        how it was made; for people, never read here

The identity is sha256 over the sha256 of both files: an adapter belongs to exactly one vocabulary and one set of
weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from distrl.errors import PolicyError
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.policy.files import CONFIG, HINT, parsed

FORMAT: Final = "distrl-autoui/1"
WEIGHTS: Final = "model.safetensors"
FILES: Final = (CONFIG, WEIGHTS)
"""Those that decide what the model does."""


def described(content: bytes, directory: Path) -> dict[str, Any]:
    """config.json of `directory`, from its content. Raises PolicyError."""
    config = parsed(content, directory / CONFIG)
    if config.get("format") != FORMAT:
        raise PolicyError(str(directory / CONFIG), f"is not of the format {FORMAT}", HINT)
    return config


def tokenizer(config: Mapping[str, Any], directory: Path) -> WordTokenizer:
    """The tokenizer that a config.json describes. Raises PolicyError."""
    try:
        return WordTokenizer(
            config["words"],
            columns=config["grid"]["columns"],
            rows=config["grid"]["rows"],
            prompt_length=config["prompt_length"],
            action_length=config["action_length"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PolicyError(str(directory / CONFIG), f"does not describe a base model ({error!r})", HINT) from None
