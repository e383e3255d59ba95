"""The directory of a Hugging Face model: which of its files decide what it does. Needs no torch.

Weights are read from safetensors alone, and no code of the directory is ever run: pickled weights and
`trust_remote_code` would run what a stranger wrote.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from distrl.errors import PolicyError
from distrl.policy.files import CONFIG, HINT, identity_of, parsed, read

TEMPLATE: Final = ".jinja"
DECIDING: Final = frozenset({".json", ".safetensors", TEMPLATE, ".txt", ".model"})
"""Suffixes of the files that the library reads: settings, weights, chat template, vocabulary."""
PREPROCESSOR: Final = ("preprocessor_config.json", "processor_config.json")
INDEX: Final = "model.safetensors.index.json"
ADAPTER: Final = "adapter_config.json"
"""With it the library would load a base model from wherever that file says."""
TEMPLATES: Final = "additional_chat_templates"


def files(directory: Path) -> list[Path]:
    """The deciding files of a model's directory, by name. Raises PolicyError where it is none."""
    try:
        listed = [*directory.iterdir(), *(directory / TEMPLATES).glob("*")]
        deciding = sorted(path for path in listed if path.suffix in DECIDING)
        found = [path for path in deciding if path.is_file()]
    except OSError as error:
        raise PolicyError(str(directory), f"cannot be read ({error.strerror})", HINT) from None
    if dangling := [path for path in deciding if not path.exists()]:
        raise PolicyError(str(dangling[0]), "is a link to no file", "download the model again, all of its files")
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
    names = {path.name for path in found}
    if ADAPTER in names:
        raise PolicyError(str(directory), f"is an adapter ({ADAPTER})", "merge it into its model, and name that")
    if INDEX in names and not set(_parts(directory)) <= names:
        raise PolicyError(
            str(directory / INDEX), "names weights that do not lie beside it", "put all files into one directory"
        )
    return found


def identity(directory: Path) -> str:
    """sha256 (hex) over the names of the deciding files and what they hold. Raises PolicyError."""
    found = files(directory)
    names = json.dumps([path.relative_to(directory).as_posix() for path in found])
    return hashlib.sha256(f"{names} {identity_of(found)}".encode()).hexdigest()


def model_type(directory: Path) -> str:
    """The library's name of the architecture. Raises PolicyError."""
    return str(parsed(read(directory / CONFIG), directory / CONFIG).get("model_type"))


def end_ids(directory: Path) -> tuple[int, ...]:
    """The token ids that end an answer, by generation_config.json, else by config.json or what that says of the
    language part; () where none names one. Raises PolicyError."""
    for name in ("generation_config.json", CONFIG):
        if (directory / name).is_file():
            content = parsed(read(directory / name), directory / name)
            for part in (content, content.get("text_config")):
                found = part.get("eos_token_id") if isinstance(part, dict) else None
                if found is not None:
                    return tuple(_ids(found, directory / name))
    return ()


def _parts(directory: Path) -> list[str]:
    """The files that the index of the weights names."""
    listed = parsed(read(directory / INDEX), directory / INDEX).get("weight_map")
    return list(map(str, listed.values())) if isinstance(listed, dict) else []


def _ids(found: Any, file: Path) -> list[int]:
    listed = found if isinstance(found, list) else [found]
    if not all(type(each) is int and each >= 0 for each in listed):
        raise PolicyError(str(file), f"eos_token_id is {json.dumps(found)[:60]}, no token ids", HINT)
    return listed
