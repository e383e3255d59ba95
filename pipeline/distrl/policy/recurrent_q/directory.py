"""The directory of a base model of this kind, which `distrl base-model recurrent-q` makes. Needs no torch.

    config.json   {"format", "width", "recurrent", "epsilon"}
    autoui/       a tiny AutoUI's directory, whose frozen model is what sees and reads

The identity is sha256 over the sha256 of config.json and of AutoUI's files. Q's own weights are all in a version.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from distrl.errors import PolicyError
from distrl.policy.autoui import directory as autoui
from distrl.policy.files import CONFIG, HINT, identity_of, parsed, read, refuse_used
from distrl.policy.recurrent_q.tokenizer import GridTokenizer

FORMAT: Final = "distrl-recurrent-q/1"
EYES: Final = "autoui"


@dataclass(frozen=True, slots=True)
class Described:
    """What config.json says. Raises ValueError where it cannot be.

    width: units of the memory. recurrent: False gives a layer in its place, DQfD's. epsilon: share of the behaviour
    distribution that is the same for all actions.
    """

    width: int = 128
    recurrent: bool = True
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        if not (type(self.width) is int and self.width >= 1 and type(self.recurrent) is bool):
            raise ValueError("width is to be 1 or more, recurrent true or false")
        if not 0.0 < self.epsilon < 1.0:
            raise ValueError("epsilon is to be between 0 and 1")


def described(directory: Path) -> Described:
    """Raises PolicyError."""
    config = parsed(read(directory / CONFIG), directory / CONFIG)
    try:
        return Described(**{name: value for name, value in config.items() if name != "format"})
    except (TypeError, ValueError) as error:
        raise PolicyError(str(directory / CONFIG), f"does not describe a base model ({error})", HINT) from None


def tokenizer(directory: Path) -> GridTokenizer:
    """Raises PolicyError."""
    described(directory)
    eyes = directory / EYES
    return GridTokenizer(autoui.tokenizer(autoui.described(read(eyes / CONFIG), eyes), eyes))


def identity(directory: Path) -> str:
    """sha256 (hex). Raises PolicyError."""
    return identity_of([directory / CONFIG, *(directory / EYES / name for name in autoui.FILES)])


def make(directory: Path, eyes: Path, about: Described) -> str:
    """Write a base model that sees by the tiny AutoUI in `eyes`, and return its identity. Raises PolicyError."""
    autoui.described(read(eyes / CONFIG), eyes)
    refuse_used(directory)
    try:
        (directory / EYES).mkdir(parents=True)
        for name in autoui.FILES:
            shutil.copyfile(eyes / name, directory / EYES / name)
        (directory / CONFIG).write_text(json.dumps({"format": FORMAT, **asdict(about)}, indent=1) + "\n")
    except OSError as error:
        raise PolicyError(str(directory), f"cannot be written ({error})", "name a writable directory") from None
    return identity(directory)
