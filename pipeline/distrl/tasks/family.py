"""What a suite is made of: kinds of tasks, each of which knows how it is asked, told to be done, and done."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distrl.phone.state import State
from distrl.types import Action, Split, Task

Params = dict[str, str]
Setup = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of task; everything about it is here.

    app: the one to be opened. phrases: templates of instructions, filled in from the parameters. draw: parameters, and
    how the phone must look, for a split. done: whether a phone is as the task asks, with nothing else changed that
    should not be. step: the next action of a perfect hand on a phone whose `app` is open and where nothing is in front,
    while the task is not done.
    """

    name: str
    app: str
    phrases: tuple[str, ...]
    draw: Callable[[random.Random, Split], tuple[Params, Setup]]
    done: Callable[[State, Task], bool]
    step: Callable[[State, Mapping[str, str]], Action]
