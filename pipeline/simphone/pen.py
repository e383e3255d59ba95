"""The common parts of all drawings: pen, font and inks."""

from __future__ import annotations

from functools import cache

from PIL import ImageDraw, ImageFont

from simphone.element import INK, WHITE, Colour, Element

FAINT: Colour = (150, 150, 155)
LINE: Colour = (210, 210, 214)
Pen = ImageDraw.ImageDraw


@cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font, so that screens are alike on every machine."""
    return ImageFont.load_default(size)


def ink_on(colour: Colour) -> Colour:
    """Black or white, whichever is more readable on `colour`."""
    red, green, blue = colour
    return INK if 3 * red + 6 * green + blue > 1500 else WHITE


def write(pen: Pen, x: float, y: float, text: str, colour: Colour = INK, size: int = 11, anchor: str = "lm") -> None:
    pen.text((x, y), text, font=font(size), fill=colour, anchor=anchor)


def middle(element: Element) -> tuple[float, float]:
    left, top, right, bottom = element.box
    return (left + right) / 2, (top + bottom) / 2


def paint(element: Element) -> tuple[Colour, Colour, Colour]:
    """Fill, edge and ink of a coloured surface."""
    if element.outlined:
        return WHITE, element.colour, INK
    return element.colour, element.colour, ink_on(element.colour)
