"""The commands of a simulated phone's shell, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simphone.commands import (
    activities,
    basics,
    dumpsys,
    filters,
    gestures,
    logs,
    methods,
    network,
    packages,
    screen,
    simctl,
    storage,
    system,
)
from simphone.commands.base import Command

_ROOMS = (
    activities,
    basics,
    dumpsys,
    filters,
    gestures,
    logs,
    methods,
    network,
    packages,
    screen,
    simctl,
    storage,
    system,
)
COMMANDS: Final[Mapping[str, Command]] = {name: run for room in _ROOMS for name, run in room.COMMANDS.items()}
