"""The hardware and package versions that decide the last bits of sums and of decoded screenshots.

Results that are cached under names that hold them are not used by a machine that would compute other bits.
"""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from typing import Final

import numpy as np
import PIL
import torch

CPUINFO: Final = Path("/proc/cpuinfo")
COMPUTING: Final = ("transformers", "peft", "torchvision")
"""Networks, adapters, and the resizing of some image processors. Not imported here, which takes seconds."""
ARM: Final = ("CPU implementer", "CPU part", "CPU variant")


def processor_and_packages() -> tuple[str, ...]:
    """The CPU by its kind, its model and what torch uses of it, and the versions of the packages that compute.

    The number of threads decides bits too, but is a setting.
    """
    return (*_processor(), torch.__version__, np.__version__, PIL.__version__, *map(version, COMPUTING))


def processor() -> str:
    """The CPU alone, for people who want to know where a figure was computed."""
    return " ".join(filter(None, _processor()))


def _processor() -> tuple[str, str, str]:
    return platform.machine(), _model(), torch.backends.cpu.get_cpu_capability()


def _model() -> str:
    """The CPU's model as Linux names it; empty elsewhere. On ARM three numbers stand for the name."""
    try:
        lines = CPUINFO.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found.get("model name") or " ".join(filter(None, (found.get(name) for name in ARM)))
