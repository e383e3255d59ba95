"""The interface of an app. To add one, write a module that makes an `App`, and register its name."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from simphone.element import LIGHT, Colour, Elements
from simphone.overlays import Dialog
from simphone.state import AppData, State

Setup = Mapping[str, Any]


def wanted(setup: Setup, key: str, names: Collection[str]) -> str:
    """The name that a setup requests, or "" if it requests none. Raises ValueError if it is not among `names`."""
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

    start: the screen its icon opens; apps from the store share one App, in whose `start` {name} stands for the app.
    fresh: the app's state after a reset, from chance and the task's setup for it, whose keys are among `takes`.
    elements: what `state.screen` shows. tap: the effect of a target. submit: of `go` or ENTER while the field has the
    focus. swipe: of a finger that moves "up", "down", "left" or "right". opened: the effect of opening the app. tick:
    the effect of any event on it, in front or not. questions: its dialogs for `State.ask`, by their names without the
    app's. moves: what is drawn over the screen at a time in seconds, changing each hundredth; only on phones of the
    kind `moving`.
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
    questions: Mapping[str, Dialog] = field(default_factory=dict)
    moves: Callable[[State, float], Elements] = stand_still
