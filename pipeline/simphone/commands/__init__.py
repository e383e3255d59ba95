"""The commands of a simulated phone's shell, by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from simphone.commands.base import Command

MODULES: Final = (
    "activities", "basics", "dumpsys", "filters", "gestures", "logs", "methods", "network", "packages", "screen",
    "simctl", "storage", "system",
)  # fmt: skip
"""The modules of this folder, each with its own COMMANDS."""
COMMANDS: Final[Mapping[str, Command]] = {
    name: run for module in MODULES for name, run in import_module(f"{__name__}.{module}").COMMANDS.items()
}
