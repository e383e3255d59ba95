"""A hand on a phone: what tests do to a state, by the targets of its widgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simphone.element import Element
from simphone.machine import Key, Open, Swipe, Tap, Text, fresh, in_front, reduce, widgets
from simphone.state import State

SWIPES = {
    "up": Swipe(64, 200, 64, 60), "down": Swipe(64, 60, 64, 200), "left": Swipe(110, 128, 20, 128),
    "right": Swipe(20, 128, 110, 128),
}  # fmt: skip
WAIT = Key("VOLUME_UP")
"""A key that does nothing, while time passes."""


def opened(app: str, setup: Mapping[str, Any] | None = None, seed: int = 0) -> State:
    """A quiet phone with an app in front, whatever it asks allowed."""
    state = reduce(fresh(seed, {app: setup} if setup else {}, 0.0), Open(app))
    return touch(state, "allow") if state.dialog else state


def waited(state: State) -> State:
    """The phone once its screen is there."""
    while state.loading:
        state = reduce(state, WAIT)
    return state


def touch(state: State, *targets: str) -> State:
    """Taps on the widgets with these targets, one after the other, each when its screen is there."""
    for target in targets:
        state = waited(state)
        state = reduce(state, Tap(*widget(state, target).centre))
    return waited(state)


def widget(state: State, target: str) -> Element:
    found = [element for element in widgets(state) if element.target == target]
    assert found, f"{state.screen} has no {target!r}: {[element.target for element in widgets(state)]}"
    return found[-1]


def write(state: State, text: str, send: str = "") -> State:
    """A text in the one field of the screen, sent by the key named, else by ENTER."""
    state = reduce(touch(state, "field"), Text(text))
    return touch(state, send) if send else waited(reduce(state, Key("ENTER")))


def swipe(state: State, direction: str) -> State:
    return reduce(state, SWIPES[direction])


def back(state: State) -> State:
    return reduce(state, Key("BACK"))


def said(state: State) -> list[str]:
    """Every word in front, as it is drawn."""
    return [element.shown for element in in_front(state)]


def rows(state: State) -> list[str]:
    """The rows in sight."""
    return [element.label for element in widgets(state) if element.kind == "row"]


def brought(state: State, target: str) -> State:
    """The list scrolled down until the widget is in sight."""
    for _ in range(20):
        if target in {element.target for element in widgets(state)}:
            return state
        state = swipe(state, "up")
    raise AssertionError(f"{target!r} is nowhere in the list of {state.screen}")
