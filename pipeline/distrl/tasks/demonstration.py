"""How demonstrations are made: by the script, from recorded episodes, or by a person. Their task ids tell which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from distrl.config import DeviceSettings
from distrl.recordings.episode import Dataset

SCRIPTED_ID: Final = "demo-"
"""How the task ids of the script's demonstrations begin."""
PLAYED_ID: Final = "played-"
"""How those of a person's begin. Those of recorded episodes begin with the data set's name."""

BY_HAND: Final = "`distrl phones play --record`"


def publishes_missing(task_ids: Sequence[str], devices: DeviceSettings, wanted: int) -> str:
    """The command that publishes demonstrations until the topic has `wanted`, with its verb.

    task_ids: of those that are there, in the order of the topic; the command is the one that made the last of them.
    Without any, all that can make some: the script cannot where `devices` names a real phone or an emulator.
    """
    script = f"`distrl demonstrate --count {wanted}`"
    recorded = f"`distrl demonstrate --episodes FOLDER --count {wanted}`"
    last = task_ids[-1] if task_ids else ""
    if last.startswith(SCRIPTED_ID):
        return f"{script} publishes what is missing"
    if last.startswith(tuple(f"{each}-" for each in Dataset)):
        return f"{recorded} publishes what is missing"
    if last.startswith(PLAYED_ID):
        return f"record the others with {BY_HAND}"
    others = f"{recorded} publishes recorded episodes, {BY_HAND} those of a person"
    if devices.serials or devices.emulators.count:
        return others
    return f"on simulated phones {script} makes them; {others}"
