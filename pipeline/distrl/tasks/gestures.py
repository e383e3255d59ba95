"""An agent's action as an event of a simulated phone, without adb."""

from __future__ import annotations

from simphone.element import HEIGHT, WIDTH
from simphone.machine import Event, Key, Swipe, Tap, Text

from distrl.types import Action, ActionKind, Point


def event_of(action: Action) -> Event | None:
    """The event that the action causes; None for COMPLETE and INVALID, which send nothing."""
    match action:
        case Action(ActionKind.TAP, Point() as touch):
            return Tap(*_pixels(touch))
        case Action(ActionKind.SWIPE, Point() as touch, Point() as lift):
            return Swipe(*_pixels(touch), *_pixels(lift))
        case Action(ActionKind.TYPE):
            return Text(action.text)
        case Action(ActionKind.BACK | ActionKind.HOME | ActionKind.ENTER):
            return Key(action.kind.value.upper())
    return None


def _pixels(point: Point) -> tuple[int, int]:
    return int(point.x * WIDTH), int(point.y * HEIGHT)
