"""What an app is to the phone. Adding one is one file that makes an `App`, and its name in the registry."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from simphone.element import LIGHT, Colour, Elements
from simphone.overlays import Question
from simphone.state import AppData, State

Setup = Mapping[str, Any]


def wanted(setup: Setup, key: str, names: Collection[str]) -> str:
    """The name that a setup asks for, or "" if it asks for none. Raises ValueError if it is none of `names`."""
    name = setup.get(key, "")
    if name != "" and name not in names:
        raise ValueError(f"{key} {name!r} is none of {', '.join(names)}")
    return str(name)


def ignore(state: State) -> State:
    return state


def stand_still(state: State, seconds: float) -> Elements:
    return ()


def ignore_swipe(state: State, direction: str) -> State:
    return state


@dataclass(frozen=True, slots=True)
class App:
    """All functions are pure.

    start: the screen its icon opens; in that of apps from the store, which share one App, {name} is the one meant.
    fresh: what the app remembers after a reset, from chance and the task's setup for it, whose keys are among `takes`.
    elements: what `state.screen` shows. tap: the effect of a target. submit: of `go` or ENTER while the field is
    focused. swipe: of a finger that moves "up", "down", "left" or "right". opened: what is new when its start has come
    up. tick: what any event does to it, whatever is in front. questions: what it may ask with `State.ask`, by the part
    of their names behind its own. moves: what is drawn over the screen at a time in seconds, and differs from one
    hundredth to the next; on phones of the kind `moving` alone.
    """

    name: str
    start: str
    fresh: Callable[[random.Random, Setup], AppData]
    elements: Callable[[State], Elements]
    tap: Callable[[State, str], State]
    submit: Callable[[State], State] = ignore
    swipe: Callable[[State, str], State] = ignore_swipe
    background: Colour = LIGHT
    takes: tuple[str, ...] = ()
    opened: Callable[[State], State] = ignore
    tick: Callable[[State], State] = ignore
    questions: Mapping[str, Question] = field(default_factory=dict)
    moves: Callable[[State, float], Elements] = stand_still
