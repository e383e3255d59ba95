"""Overlays of an app's screen other than pop-ups: a toast, a loading screen, a dialog of the app."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simphone.element import BLUE, GREY, LIGHT, RED, WIDTH, Colour, Element, Elements
from simphone.popups import LATER_GREY, PANEL
from simphone.state import State

HARMLESS: Final[Colour] = BLUE
HARMFUL: Final[Colour] = RED

LOADING: Final[Elements] = (
    Element("spinner", (48, 88, 80, 120), colour=BLUE),
    Element("text", (0, 132, WIDTH, 156), text="loading", colour=GREY),
)


def toast(text: str) -> Element:
    """A short message at the bottom, which cannot be tapped."""
    return Element("toast", (8, 196, 120, 220), text=text)


@dataclass(frozen=True, slots=True)
class Dialog:
    """A dialog with at most two buttons, whose labels are their targets.

    yes, then: the confirming button and its effect; no, otherwise: the same for the refusing one, "" for none.
    Both get the state without the dialog. BACK and HOME close the dialog without an answer.
    """

    text: str
    yes: str
    then: Callable[[State], State]
    no: str = "cancel"
    otherwise: Callable[[State], State] = lambda state: state
    colour: Colour = HARMLESS

    def elements(self) -> Elements:
        left = 64 if self.no else 36
        buttons = [Element("button", (left, 144, left + 56, 176), self.yes, self.yes, colour=self.colour)]
        if self.no:
            buttons.insert(0, Element("button", (8, 144, 64, 176), self.no, self.no, colour=LATER_GREY))
        return (Element("panel", PANEL, text=self.text, colour=LIGHT), *buttons)
