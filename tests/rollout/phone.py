"""The simulated phone itself, without adb: what the worker's loop is tried on in one process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from distrl.rollout.episode import Screen
from distrl.tasks.gestures import event_of
from distrl.types import Action, HeldBack, Task
from simphone.machine import PhoneMachine


class MachinePhone:
    serial = "machine"

    def __init__(self, popup_probability: float = 0.1) -> None:
        self._machine = PhoneMachine(0, popup_probability)

    def reset(self, task: Task) -> None:
        self._machine.reset(task.phone_seed, json.loads(task.setup))

    def settle(self) -> Screen:
        return Screen(self._machine.png())

    def perform(self, action: Action) -> HeldBack:
        if (event := event_of(action)) is not None:
            self._machine.apply(event)
        return HeldBack.NO

    def left_apps(self) -> tuple[str, ...]:
        return ()

    def truth(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = json.loads(json.dumps(self._machine.state()))
        return state
