"""Draws the widgets that only the newer apps have; canvas.py draws the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from simphone.element import BLUE, GREEN, INK, RED, WHITE, Colour, Element
from simphone.pen import FAINT, LINE, Pen, font, middle, paint, write

DUSK: Final[Colour] = (50, 50, 56)
MEADOW: Final[Colour] = (214, 232, 205)
SMALL: Final = 9
RIGHT: Final = 10
"""Px between a caption and the right edge, for a scroll bar."""


def _caption(pen: Pen, element: Element) -> None:
    """Small words on the right of a row."""
    _, top, right, bottom = element.box
    left = right - RIGHT - font(SMALL).getlength(element.shown)
    write(pen, left, (top + bottom) / 2, element.shown, element.colour, SMALL)


def _toast(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    pen.rounded_rectangle((left, top, right - 1, bottom - 1), 12, fill=DUSK)
    write(pen, *middle(element), element.shown, WHITE, 10, "mm")


def _spinner(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    pen.arc((left, top, right - 1, bottom - 1), 0, 270, fill=element.colour, width=4)


def _avatar(pen: Pen, element: Element) -> None:
    """A round avatar with the first letter of a name."""
    left, top, right, bottom = element.box
    pen.ellipse((left, top, right - 1, bottom - 1), fill=element.colour)
    write(pen, *middle(element), element.shown[:1], WHITE, 20, "mm")


def _round(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    fill, edge, ink = paint(element)
    pen.ellipse((left + 2, top + 1, right - 3, bottom - 2), fill=fill, outline=edge)
    write(pen, *middle(element), element.shown, ink, 12, "mm")


def _disc(pen: Pen, element: Element) -> tuple[float, float, Colour]:
    """A coloured disc around the centre, and the ink to draw on it."""
    x, y = middle(element)
    fill, edge, ink = paint(element)
    pen.ellipse((x - 15, y - 15, x + 15, y + 15), fill=fill, outline=edge)
    return x, y, ink


def _play(pen: Pen, element: Element) -> None:
    x, y, ink = _disc(pen, element)
    pen.polygon([(x - 5, y - 8), (x + 9, y), (x - 5, y + 8)], fill=ink)


def _pause(pen: Pen, element: Element) -> None:
    x, y, ink = _disc(pen, element)
    pen.rectangle((x - 7, y - 7, x - 3, y + 7), fill=ink)
    pen.rectangle((x + 3, y - 7, x + 7, y + 7), fill=ink)


def _next(pen: Pen, element: Element) -> None:
    x, y, ink = _disc(pen, element)
    for left in (x - 7, x):
        pen.polygon([(left, y - 7), (left + 7, y), (left, y + 7)], fill=ink)
    pen.rectangle((x + 7, y - 7, x + 9, y + 7), fill=ink)


def _day(pen: Pen, element: Element) -> None:
    """A day of a month, with a dot where something is planned."""
    x, y = middle(element)
    write(pen, x, y - 3, element.shown, INK, 10, "mm")
    if element.on:
        pen.ellipse((x - 3, y + 5, x + 3, y + 11), fill=element.colour)


def _map(pen: Pen, element: Element) -> None:
    """A street map; with a pin for a place and a line for directions."""
    left, top, right, bottom = element.box
    pen.rectangle((left, top, right - 1, bottom - 1), fill=MEADOW)
    for x in range(left + 12, right, 34):
        pen.line((x, top, x, bottom - 1), fill=WHITE, width=5)
    for y in range(top + 14, bottom, 30):
        pen.line((left, y, right - 1, y), fill=WHITE, width=5)
    if element.on:
        pen.line((left + 12, bottom - 8, left + 12, top + 44, left + 80, top + 44), fill=BLUE, width=4)
    if element.label:
        x, y = left + 80, top + 44
        pen.polygon([(x - 7, y - 16), (x + 7, y - 16), (x, y)], fill=RED)
        pen.ellipse((x - 8, y - 26, x + 8, y - 10), fill=RED)


def _star(pen: Pen, element: Element) -> None:
    x, y = middle(element)
    points = [(0, -10), (3, -3), (10, -3), (4, 2), (6, 10), (0, 5), (-6, 10), (-4, 2), (-10, -3), (-3, -3)]
    fill = element.colour if element.on else WHITE
    pen.polygon([(x + dx, y + dy) for dx, dy in points], fill=fill, outline=element.colour if element.on else FAINT)


def _progress(pen: Pen, element: Element) -> None:
    """A grey track, and a coloured one on it for the progress."""
    left, top, right, bottom = element.box
    pen.rounded_rectangle((left, top, right - 1, bottom - 1), 4, fill=GREEN if element.on else LINE)


FIGURES: Final[Mapping[str, Callable[[Pen, Element], None]]] = {
    "avatar": _avatar,
    "caption": _caption,
    "day": _day,
    "map": _map,
    "next": _next,
    "pause": _pause,
    "play": _play,
    "progress": _progress,
    "round": _round,
    "spinner": _spinner,
    "star": _star,
    "toast": _toast,
}
