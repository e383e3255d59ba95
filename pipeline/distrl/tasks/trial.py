"""One task played by a script on a simulated phone in this process: no adb, no clock, a millisecond or two a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distrl.phone.gestures import event_of
from distrl.phone.machine import PhoneMachine
from distrl.tasks.oracle import oracle
from distrl.tasks.outcome import succeeded
from distrl.types import Action, Task

Script = Callable[[Task, Mapping[str, Any]], Action]


@dataclass(frozen=True, slots=True)
class Trial:
    """steps: actions taken, the last COMPLETE included."""

    done: bool
    steps: int


def prepared(task: Task, popup_probability: float = 0.0, generation: int = 0) -> PhoneMachine:
    """A phone as the task finds it."""
    phone = PhoneMachine(0, popup_probability, generation)
    phone.reset(task.phone_seed, json.loads(task.setup))
    return phone


def play(task: Task, popup_probability: float = 0.0, generation: int = 0, script: Script = oracle) -> Trial:
    """Let the script play until it says COMPLETE or has no step left."""
    phone = prepared(task, popup_probability, generation)
    steps = 0
    while steps < task.max_steps:
        action = script(task, phone.state())
        steps += 1
        event = event_of(action)
        if event is None:
            break
        phone.apply(event)
    return Trial(bool(succeeded(task, phone.state())), steps)
