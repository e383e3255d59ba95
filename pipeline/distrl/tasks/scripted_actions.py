"""Actions of scripts that see the phone's state: tap a widget by its target, swipe, type into a field. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simphone.apps.lists import PREFIX, row_of
from simphone.element import HEIGHT, WIDTH, Element
from simphone.machine import widgets
from simphone.state import State

from distrl.types import Action, ActionKind, Point

COLUMNS, ROWS = 8, 16
"""The grid that policies tap on; a script taps the centres of its cells, so that its taps can be written as tokens."""

BACK: Final = Action(ActionKind.BACK)
ENTER: Final = Action(ActionKind.ENTER)
GO_HOME: Final = Action(ActionKind.HOME)
COMPLETE: Final = Action(ActionKind.COMPLETE)
WAIT: Final = Action(ActionKind.TAP, touch=Point(4.5 / 8, 7.5 / 16))
"""A tap on the centre of a loading screen, which does nothing."""
SWIPES: Final = {
    "up": (Point(0.5, 0.8), Point(0.5, 0.2)),
    "down": (Point(0.5, 0.2), Point(0.5, 0.8)),
    "left": (Point(0.8, 0.5), Point(0.2, 0.5)),
    "right": (Point(0.2, 0.5), Point(0.8, 0.5)),
}


def tap(now: State, target: str) -> Action:
    """A tap on the centre of the widget with this target; BACK if the screen has none."""
    return tap_if_there(now, target) or BACK


def tap_if_there(now: State, target: str) -> Action | None:
    found = next((element for element in widgets(now) if element.target == target), None)
    return None if found is None else Action(ActionKind.TAP, touch=cell_centre(found))


def tap_row(now: State, names: Sequence[str], wanted: str) -> Action:
    """A tap on an entry of the long list in front, or a swipe towards it; BACK if the list has no such entry."""
    if wanted not in names:
        return BACK
    shown = [names.index(name) for name in map(row_of, targets(now)) if name in names]
    return tap_if_there(now, PREFIX + wanted) or swipe("down" if names.index(wanted) < min(shown, default=0) else "up")


def targets(now: State) -> tuple[str, ...]:
    """The elements that can be tapped."""
    return tuple(element.target for element in widgets(now))


def cell_centre(element: Element) -> Point:
    """The centre of the grid cell that contains the widget's centre."""
    left, top, right, bottom = element.box
    column, row = (left + right) * COLUMNS // (2 * WIDTH), (top + bottom) * ROWS // (2 * HEIGHT)
    return Point((min(column, COLUMNS - 1) + 0.5) / COLUMNS, (min(row, ROWS - 1) + 0.5) / ROWS)


def swipe(direction: str) -> Action:
    touch, lift = SWIPES[direction]
    return Action(ActionKind.SWIPE, touch=touch, lift=lift)


def write(now: State, text: str, send: str = "") -> Action:
    """Type `text` into the screen's field, and send it: by the key named `send`, else by ENTER. BACK if there is no
    field.
    """
    if not now.focused:
        return tap(now, "field")
    if now.typed != text:
        return Action(ActionKind.TYPE, text=text)
    return tap(now, send) if send else ENTER
