"""Verified screenshots: decoded completely once before use."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass

from PIL import Image

from distrl.images import MAX_PIXELS

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK_START = struct.Struct(">I4s")
_CHUNK_EXTRA = 12
"""Bytes of a chunk beside its data: length, kind, and a checksum of kind and data."""
_SIZE = struct.Struct(">II")


class BrokenImageError(Exception):
    """Bytes that are not a complete PNG; the message has the reason."""


class OversizedImageError(Exception):
    """A PNG with more than images.MAX_PIXELS pixels; nothing of it was decoded."""


class BlackImageError(Exception):
    """A complete picture of which every pixel is black."""


@dataclass(frozen=True, slots=True)
class Screenshot:
    """A complete PNG and its size in pixels."""

    png: bytes
    width: int
    height: int
    restless: bool = False
    """One frame of a screen that kept changing."""


def verified(png: bytes) -> Screenshot:
    """Checks all of png: every chunk's checksum, every row, the declared size.

    Raises BrokenImageError; OversizedImageError for more than images.MAX_PIXELS pixels, before decoding;
    BlackImageError for a complete picture that is all black.
    """
    width, height = _whole(png)
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            image.load()
            size = image.size
            black = _black(image)
    except MemoryError:
        raise  # no fault of the bytes
    except Exception as error:  # Pillow raises many kinds, like IndexError for an empty chunk
        raise BrokenImageError(f"a PNG of {len(png)} bytes that cannot be decoded: {error}") from error
    if size != (width, height):
        raise BrokenImageError(f"a PNG that declares {width} x {height} and has {size[0]} x {size[1]}")
    if black:
        raise BlackImageError(f"all {width} x {height} pixels are black")
    return Screenshot(png, width, height)


def _black(image: Image.Image) -> bool:
    """Ignores transparency: some phones return transparent black for a screen that is off."""
    return image.convert("RGB").getextrema() == ((0, 0),) * 3


def _whole(png: bytes) -> tuple[int, int]:
    """Width and height. Checks the checksum of every chunk, and that nothing follows the last.

    Pillow checks neither the data's checksum nor the closing chunk, so it would accept a PNG truncated there.
    """
    if not png.startswith(_SIGNATURE):
        raise BrokenImageError(f"{len(png)} bytes that are not a PNG")
    at, size, kind = len(_SIGNATURE), (0, 0), b""
    while kind != b"IEND":
        if at + _CHUNK_EXTRA > len(png):
            raise BrokenImageError(f"a PNG that is cut off after {len(png)} bytes")
        length, kind = _CHUNK_START.unpack_from(png, at)
        end = at + _CHUNK_EXTRA + length
        checked = memoryview(png)[at + 4 : end]
        if end > len(png) or zlib.crc32(checked[:-4]) != int.from_bytes(checked[-4:]):
            raise BrokenImageError(f"a PNG whose chunk at byte {at} is damaged or cut off")
        if kind == b"IHDR" and length >= _SIZE.size:
            size = _SIZE.unpack_from(png, at + _CHUNK_START.size)
        at = end
    if at != len(png) or 0 in size:
        raise BrokenImageError(f"a PNG that declares {size[0]} x {size[1]}, with {len(png) - at} bytes behind it")
    if size[0] * size[1] > MAX_PIXELS:
        raise OversizedImageError(f"{size[0]} x {size[1]} pixels; at most {MAX_PIXELS:,} are allowed")
    return size
