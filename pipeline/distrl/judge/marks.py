"""Draws an action's touch on the screenshot that it was decided on."""

from __future__ import annotations

import io
from typing import Final

from PIL import Image, ImageDraw

from distrl.images import opened
from distrl.types import Action

TOUCH: Final = (226, 88, 62)
RINGS: Final = ((9, 3), (2, 2))
"""(radius, width) in units."""
UNITS_ACROSS: Final = 240
"""Unit for a whole screenshot: the outer ring is about as large as a fingertip, and hides no icon."""


def draw_touch(image: Image.Image, action: Action, unit: float) -> None:
    """A ring for a tap, a line with a ring at its end for a swipe. unit: pixels."""
    if action.touch is None:
        return
    pen = ImageDraw.Draw(image)
    x, y = action.touch.x * image.width, action.touch.y * image.height
    if action.lift is not None:
        x_end, y_end = action.lift.x * image.width, action.lift.y * image.height
        pen.line((x, y, x_end, y_end), fill=TOUCH, width=round(3 * unit))
        x, y = x_end, y_end
    for units, width in RINGS:
        radius = units * unit
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), outline=TOUCH, width=round(width * unit))


def marked(png: bytes, action: Action) -> bytes:
    """The screenshot in its own size with the touch drawn, as PNG. Raises ImageError if it is not a picture."""
    image = opened(png)
    draw_touch(image, action, max(1.0, image.width / UNITS_ACROSS))
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
