"""Draws elements. Pure, without a clock: equal elements give equal images."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from PIL import Image, ImageDraw

from simphone.element import BLUE, GREEN, HEIGHT, INK, LIGHT, WHITE, WIDTH, Colour, Element, Elements
from simphone.figures import FIGURES
from simphone.pen import FAINT, LINE, Pen, ink_on, middle, paint, write

ALPHABET: Final = string.ascii_lowercase + string.digits


def draw(elements: Elements, background: Colour = LIGHT, dimmed: int = 0) -> Image.Image:
    """An RGB image of 128x256 px. The first `dimmed` elements are behind a dialog."""
    image = Image.new("RGB", (WIDTH, HEIGHT), background)
    pen = ImageDraw.Draw(image)
    for element in elements[:dimmed]:
        PRIMITIVES[element.kind](pen, element)
    if dimmed:
        image = image.point([value // 2 for value in range(256)] * 3)
        pen = ImageDraw.Draw(image)
    for element in elements[dimmed:]:
        PRIMITIVES[element.kind](pen, element)
    return image


@dataclass(frozen=True, slots=True)
class Letter:
    """One drawn character and its centre, px."""

    character: str
    x: float
    y: float


def letters(elements: Elements) -> list[Letter]:
    """Every letter and digit that `draw` would write, in lower case, including covered ones."""
    pen = _Recorder(Image.new("RGB", (WIDTH, HEIGHT)))
    for element in elements:
        PRIMITIVES[element.kind](pen, element)
    return pen.letters


class _Recorder(ImageDraw.ImageDraw):
    """A pen that records what it writes. Texts are anchored as in `write`: left or middle, middle."""

    def __init__(self, image: Image.Image) -> None:
        super().__init__(image)
        self.letters: list[Letter] = []

    def text(self, xy: Any, text: Any, *args: Any, font: Any = None, anchor: Any = None, **more: Any) -> None:
        x, y = xy
        left = x if anchor[0] == "l" else x - font.getlength(text) / 2
        for i, character in enumerate(text.lower()):
            if character in ALPHABET:
                middle = (font.getlength(text[:i]) + font.getlength(text[: i + 1])) / 2
                self.letters.append(Letter(character, left + middle, y))


def _bar(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    fill, edge, ink = paint(element)
    pen.rectangle((left, top, right - 1, bottom - 1), fill=fill, outline=edge)
    write(pen, left + 6, (top + bottom) / 2, element.shown, ink, 12)


def _icon(pen: Pen, element: Element) -> None:
    left, top, right, _ = element.box
    x = (left + right) // 2 - 14
    box = (x, top + 2, x + 28, top + 30)
    fill, edge, _ = paint(element)
    match sum(map(ord, element.label)) % 4:
        case 0:
            pen.rounded_rectangle(box, 6, fill=fill, outline=edge)
        case 1:
            pen.ellipse(box, fill=fill, outline=edge)
        case 2:
            pen.polygon([(x + 14, top + 2), (x + 28, top + 30), (x, top + 30)], fill=fill, outline=edge)
        case _:
            pen.polygon(
                [(x + 14, top + 2), (x + 28, top + 16), (x + 14, top + 30), (x, top + 16)], fill=fill, outline=edge
            )
    write(pen, (left + right) / 2, top + 39, element.shown, INK, 11, "mm")


def _row(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    if element.colour != LIGHT:
        pen.rectangle((left, top, right - 1, bottom - 1), fill=element.colour)
    pen.line((left, bottom - 1, right, bottom - 1), fill=LINE)
    write(pen, left + 6, (top + bottom) / 2, element.shown, ink_on(element.colour))


def _toggle(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    middle = (top + bottom) // 2
    pen.line((left, bottom - 1, right, bottom - 1), fill=LINE)
    write(pen, left + 6, middle, element.shown)
    pen.rounded_rectangle((right - 32, middle - 8, right - 6, middle + 8), 8, fill=GREEN if element.on else FAINT)
    knob = right - 20 if element.on else right - 31
    pen.ellipse((knob, middle - 6, knob + 12, middle + 6), fill=WHITE)


def _field(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    edge = BLUE if element.on else FAINT
    pen.rounded_rectangle((left, top, right - 1, bottom - 1), 7, fill=WHITE, outline=edge, width=3 if element.on else 1)
    write(pen, left + 7, (top + bottom) / 2, element.text or element.label, INK if element.text else FAINT)


def _button(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    fill, edge, ink = paint(element)
    pen.rounded_rectangle((left + 2, top + 2, right - 3, bottom - 3), 6, fill=fill, outline=edge)
    write(pen, *middle(element), element.shown, ink, 11, "mm")


def _tab(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    fill, edge, ink = paint(element)
    pen.rectangle((left, top, right - 1, bottom - 1), fill=fill, outline=edge)
    write(pen, *middle(element), element.shown, ink, 11, "mm")
    if element.on:
        pen.rectangle((left, bottom - 4, right - 1, bottom - 1), fill=BLUE)


def _tile(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    fill = GREEN if element.on else element.colour
    pen.rectangle((left + 3, top + 2, right - 4, bottom - 3), fill=fill)
    write(pen, *middle(element), element.shown, ink_on(fill), 11, "mm")


def _product(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    pen.line((left, bottom - 1, right, bottom - 1), fill=LINE)
    pen.rectangle((left + 8, top + 6, left + 42, bottom - 7), fill=element.colour)
    write(pen, left + 50, (top + bottom) / 2, element.shown)


def _picture(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    pen.rectangle((left, top, right - 1, bottom - 1), fill=element.colour)


def _text(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    write(pen, (left + right) / 2, (top + bottom) / 2, element.shown, element.colour, 12, "mm")


def _lines(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    for y in range(top, bottom, 12):
        pen.line((left, y, right - 1, y), fill=LINE, width=3)


def _bubble(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    fill, edge, ink = paint(element)
    pen.rounded_rectangle((left, top, right - 1, bottom - 1), 7, fill=fill, outline=edge)
    write(pen, left + 6, (top + bottom) / 2, element.shown, ink)


def _cross(pen: Pen, element: Element) -> None:
    x, y = middle(element)
    pen.line((x - 7, y - 7, x + 7, y + 7), fill=element.colour, width=3)
    pen.line((x - 7, y + 7, x + 7, y - 7), fill=element.colour, width=3)


def _dial(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    x, y = middle(element)
    pen.ellipse((left, top, right - 1, bottom - 1), outline=element.colour, width=3)
    pen.line((x, y, x, top + 14), fill=element.colour, width=3)
    pen.line((x, y, right - 26, y), fill=element.colour, width=3)


def _scroll(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    pen.rounded_rectangle((left, top, right - 1, bottom - 1), 2, fill=FAINT)


def _keys(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    pen.rectangle((left, top, right - 1, bottom - 1), fill=(200, 205, 212))
    for row in range(3):
        for column in range(8):
            x, y = left + column * 16 + 2, top + 5 + row * 20
            pen.rounded_rectangle((x, y, x + 11, y + 15), 2, fill=WHITE)


def _panel(pen: Pen, element: Element) -> None:
    left, top, right, bottom = element.box
    pen.rounded_rectangle((left, top, right - 1, bottom - 1), 8, fill=WHITE)
    write(pen, (left + right) / 2, (top + bottom) / 2 - 4, element.shown, INK, 11, "mm")


PRIMITIVES: dict[str, Callable[[Pen, Element], None]] = {
    "bar": _bar,
    "icon": _icon,
    "row": _row,
    "toggle": _toggle,
    "field": _field,
    "button": _button,
    "tab": _tab,
    "tile": _tile,
    "product": _product,
    "picture": _picture,
    "text": _text,
    "lines": _lines,
    "bubble": _bubble,
    "cross": _cross,
    "dial": _dial,
    "scroll": _scroll,
    "keys": _keys,
    "panel": _panel,
    **FIGURES,
}
