"""The elements of a screen, some of which react to taps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

Box = tuple[int, int, int, int]
Colour = tuple[int, int, int]

WIDTH: Final = 128
HEIGHT: Final = 256

GREY: Final[Colour] = (110, 110, 120)
BLUE: Final[Colour] = (40, 110, 235)
ORANGE: Final[Colour] = (235, 120, 25)
NAVY: Final[Colour] = (25, 25, 55)
GREEN: Final[Colour] = (35, 150, 70)
VIOLET: Final[Colour] = (120, 70, 190)
YELLOW: Final[Colour] = (245, 195, 45)
INK: Final[Colour] = (25, 25, 30)
LIGHT: Final[Colour] = (246, 246, 248)
WHITE: Final[Colour] = (255, 255, 255)
RED: Final[Colour] = (215, 45, 45)

NAMED: Final[dict[str, Colour]] = {
    "red": (220, 30, 30),
    "blue": (40, 70, 230),
    "green": (30, 160, 50),
    "yellow": (235, 210, 30),
    "pink": (245, 120, 180),
    "black": (20, 20, 20),
    "orange": (245, 140, 20),
    "purple": (130, 40, 170),
}


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a screen.

    kind: how it is drawn (canvas.py). box: left, top, right, bottom in px, right and bottom exclusive.
    label: its name for people. target: what a tap does; "" if it cannot be tapped.
    text: what is drawn if not the label. on: switched on, selected or focused.
    outlined: drawn as a coloured outline instead of filled.
    """

    kind: str
    box: Box
    label: str = ""
    target: str = ""
    text: str = ""
    on: bool = False
    colour: Colour = GREY
    outlined: bool = False

    def holds(self, x: int, y: int) -> bool:
        left, top, right, bottom = self.box
        return left <= x < right and top <= y < bottom

    @property
    def centre(self) -> tuple[int, int]:
        """Its centre, px."""
        left, top, right, bottom = self.box
        return (left + right) // 2, (top + bottom) // 2

    @property
    def shown(self) -> str:
        return self.text or self.label


Elements = tuple[Element, ...]


def title(text: str, colour: Colour, top: int = 0) -> Element:
    return Element("bar", (0, top, WIDTH, top + 24), text=text, colour=colour)


def search_box(typed: str, focused: bool, top: int, target: str, label: str = "search") -> Element:
    return Element("field", (8, top, 120, top + 32), label, target, text=typed, on=focused)


def keyboard(target: str, label: str = "go") -> Elements:
    """The soft keyboard; only its key that sends the field's text has an effect."""
    return (
        Element("keys", (0, 160, WIDTH, HEIGHT)),
        Element("button", (80, 224, WIDTH, HEIGHT), label, target, colour=BLUE),
    )
