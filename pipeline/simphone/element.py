"""What a screen is made of: things at places, of which some do something when they are tapped."""

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
    """One thing on a screen.

    kind: how it is drawn (canvas.py). box: left, top, right, bottom in px, right and bottom outside of it.
    label: its words, as a person would name it. target: what a tap does; "" for what cannot be tapped.
    text: what is drawn, where that is not the label. on: switched on, selected or focused.
    outlined: drawn as a coloured line around white, where it would be filled.
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
        """Where a finger hits it best, px."""
        left, top, right, bottom = self.box
        return (left + right) // 2, (top + bottom) // 2

    @property
    def shown(self) -> str:
        return self.text or self.label


Elements = tuple[Element, ...]


def title(text: str, colour: Colour) -> Element:
    return Element("bar", (0, 0, WIDTH, 24), text=text, colour=colour)


def search_box(typed: str, focused: bool, top: int, target: str, label: str = "search") -> Element:
    return Element("field", (8, top, 120, top + 32), label, target, text=typed, on=focused)


def keyboard(target: str, label: str = "go") -> Elements:
    """The soft keyboard, whose one key of consequence sends the field's text."""
    return (
        Element("keys", (0, 160, WIDTH, HEIGHT)),
        Element("button", (80, 224, WIDTH, HEIGHT), label, target, colour=BLUE),
    )
