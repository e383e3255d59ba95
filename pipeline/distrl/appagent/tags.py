"""Numbers drawn on a screenshot: in the middle of an element, in the corner of a cell. Pure."""

from __future__ import annotations

import io
from collections.abc import Iterable
from functools import cache
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from distrl.appagent.elements import Box
from distrl.appagent.grid import Grid
from distrl.images import MAX_PIXELS, ImageError, opened

LEAST_WIDTH: Final = 512
"""A smaller screenshot is enlarged by an integer, so that its tags are readable and do not cover it."""
TAG: Final = (20, 20, 30, 170)
INK: Final = (255, 255, 255, 255)
LINE: Final = (210, 20, 50, 200)
TAG_LETTER: Final = 0.045
CELL_LETTER: Final = 0.028
"""Heights of numbers, relative to the picture's width."""


def size_of(png: bytes) -> tuple[int, int]:
    """Width and height, px."""
    with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
        return image.size


def blank() -> bytes:
    """A blank picture, PNG."""
    return _saved(Image.new("RGB", (LEAST_WIDTH, LEAST_WIDTH), (127, 127, 127)))


def tagged(png: bytes, boxes: Iterable[Box]) -> bytes:
    """The screenshot with the numbers 1, 2, … in the middle of `boxes`, as PNG bytes."""
    image, scale = _opened(png)
    pen = ImageDraw.Draw(image, "RGBA")
    for number, (left, top, right, bottom) in enumerate(boxes, 1):
        _tag(pen, image.width, number, (left + right) * scale / 2, (top + bottom) * scale / 2)
    return _saved(image)


def gridded(png: bytes, grid: Grid) -> bytes:
    """The screenshot with the cells of `grid`, each with its number, as PNG bytes."""
    image, _ = _opened(png)
    pen = ImageDraw.Draw(image, "RGBA")
    width, height = image.width / grid.columns, image.height / grid.rows
    for column in range(1, grid.columns):
        pen.line((column * width, 0, column * width, image.height), LINE)
    for row in range(1, grid.rows):
        pen.line((0, row * height, image.width, row * height), LINE)
    for cell in range(grid.cells):
        row, column = divmod(cell, grid.columns)
        font = _font(round(image.width * CELL_LETTER))
        corner = (column * width + 2, row * height + 2)
        pen.text(corner, str(cell + 1), LINE, font, anchor="lt", stroke_width=1, stroke_fill=INK)
    return _saved(image)


def _opened(png: bytes) -> tuple[Image.Image, int]:
    """The picture, enlarged if it is small, and the factor. Raises ImageError, also where that would be too large."""
    image = opened(png)
    scale = -(-LEAST_WIDTH // image.width)
    if image.width * image.height * scale**2 > MAX_PIXELS:
        raise ImageError(f"has {image.width} x {image.height} pixels, which is too high to be enlarged")
    return image.resize((image.width * scale, image.height * scale), Image.Resampling.NEAREST), scale


def _tag(pen: ImageDraw.ImageDraw, width: int, number: int, x: float, y: float) -> None:
    letter = round(width * TAG_LETTER)
    across = letter * (0.3 + 0.35 * len(str(number)))
    pen.rounded_rectangle((x - across, y - 0.65 * letter, x + across, y + 0.65 * letter), letter // 3, TAG)
    pen.text((x, y), str(number), INK, _font(letter), anchor="mm")


@cache
def _font(size: int) -> ImageFont.ImageFont | ImageFont.FreeTypeFont:
    return ImageFont.load_default(size)


def _saved(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=1)
    return out.getvalue()
