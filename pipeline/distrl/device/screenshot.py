"""A screenshot that is whole: decoded once to its last pixel before anyone may see it."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass

from PIL import Image

MAX_PIXELS = 8192 * 8192
"""Beyond any phone: a header may claim a size whose decoding would take all memory."""
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_IHDR = struct.Struct(">I4sII")


class BrokenImageError(Exception):
    """Bytes that are no whole PNG; the text says why."""


@dataclass(frozen=True, slots=True)
class Screenshot:
    """PNG bytes and the size of the picture in pixels."""

    png: bytes
    width: int
    height: int


def verified(png: bytes) -> Screenshot:
    """Decode all of png: checksums, every row, the declared size. Raises BrokenImageError."""
    if not png.startswith(_SIGNATURE) or len(png) < len(_SIGNATURE) + _IHDR.size:
        raise BrokenImageError(f"{len(png)} bytes that are no PNG")
    _, kind, width, height = _IHDR.unpack_from(png, len(_SIGNATURE))
    if kind != b"IHDR" or not 0 < width * height <= MAX_PIXELS:
        raise BrokenImageError(f"a PNG that says it is {width} x {height}")
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            image.verify()
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            image.load()
            size = image.size
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise BrokenImageError(f"a PNG of {len(png)} bytes that cannot be decoded: {error}") from error
    if size != (width, height):
        raise BrokenImageError(f"a PNG that says it is {width} x {height} and holds {size[0]} x {size[1]}")
    return Screenshot(png, width, height)
