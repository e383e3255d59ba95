"""The directory of a Hugging Face model: which of its files decide what it does. Needs no torch.

Weights are read from safetensors alone, and no code of the directory is ever run: pickled weights and
`trust_remote_code` would run what a stranger wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from distrl.errors import PolicyError
from distrl.policy.files import CONFIG, HINT, identity_of, parsed, read

DECIDING: Final = frozenset({".json", ".safetensors", ".jinja", ".txt", ".model"})
"""Suffixes of the files that the library reads: settings, weights, chat template, vocabulary."""
PREPROCESSOR: Final = ("preprocessor_config.json", "processor_config.json")


def files(directory: Path) -> list[Path]:
    """The deciding files of a model's directory, by name. Raises PolicyError where it is none."""
    try:
        found = sorted(path for path in directory.iterdir() if path.suffix in DECIDING and path.is_file())
    except OSError as error:
        raise PolicyError(str(directory), f"cannot be read ({error.strerror})", HINT) from None
    if not any(path.suffix == ".safetensors" for path in found):
        raise PolicyError(
            str(directory),
            "has no weights as safetensors, and pickled ones can run code",
            "save the model again with `save_pretrained`, which writes safetensors",
        )
    if not any(path.name in PREPROCESSOR for path in found):
        raise PolicyError(
            str(directory), f"has no image processor ({' or '.join(PREPROCESSOR)})", "name a vision-language model"
        )
    return found


def identity(directory: Path) -> str:
    """sha256 (hex) over what the deciding files hold, in the order of their names. Raises PolicyError."""
    return identity_of(files(directory))


def model_type(directory: Path) -> str:
    """The library's name of the architecture. Raises PolicyError."""
    return str(parsed(read(directory / CONFIG), directory).get("model_type"))


def end_ids(directory: Path) -> tuple[int, ...]:
    """The token ids that end an answer, by generation_config.json, else by config.json; () where neither names one.
    Raises PolicyError."""
    for name in ("generation_config.json", CONFIG):
        if (directory / name).is_file():
            found = parsed(read(directory / name), directory).get("eos_token_id")
            if found is not None:
                return tuple(_ids(found, directory / name))
    return ()


def _ids(found: Any, file: Path) -> list[int]:
    listed = found if isinstance(found, list) else [found]
    if not all(type(each) is int and each >= 0 for each in listed):
        raise PolicyError(str(file), f"eos_token_id is {json.dumps(found)[:60]}, no token ids", HINT)
    return listed
