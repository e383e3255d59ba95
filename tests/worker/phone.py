"""The simulated phone itself, without adb: what the worker's loop is tried on in one process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from distrl.phone.machine import Event, Key, PhoneMachine, Swipe, Tap, Text
from distrl.types import Action, ActionKind, Point, Task


class MachinePhone:
    serial = "machine"

    def __init__(self, popup_probability: float = 0.1) -> None:
        self._machine = PhoneMachine(0, popup_probability)

    def reset(self, task: Task) -> None:
        self._machine.reset(task.phone_seed, json.loads(task.setup))

    def settle(self) -> bytes:
        return self._machine.png()

    def perform(self, action: Action) -> bool:
        self._machine.apply(self._event(action))
        return True

    def taken_back(self) -> tuple[str, ...]:
        return ()

    def truth(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = json.loads(json.dumps(self._machine.state()))
        return state

    def _event(self, action: Action) -> Event:
        match action:
            case Action(ActionKind.TAP, touch=Point() as touch):
                return Tap(*self._pixels(touch))
            case Action(ActionKind.SWIPE, touch=Point() as touch, lift=Point() as lift):
                return Swipe(*self._pixels(touch), *self._pixels(lift))
            case Action(ActionKind.TYPE):
                return Text(action.text)
        return Key(action.kind.name)

    def _pixels(self, point: Point) -> tuple[int, int]:
        width, height = self._machine.size
        return int(point.x * width), int(point.y * height)
