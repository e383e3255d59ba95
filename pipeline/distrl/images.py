"""Decodes screenshots, with one size limit for phones, policy, judges and offline tools."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from PIL import Image, UnidentifiedImageError

from distrl.types import ScreenSize

MAX_PIXELS: Final = 32_000_000
"""Width times height. A header may claim a size whose decoding would take all memory; no phone's screen has half of
this. One limit for all: a screenshot that a worker accepts and the policy refuses would spoil its episode."""


class ImageError(ValueError):
    """Bytes that are no PNG image, or one that is too large; the text says which."""


def size(png: bytes) -> ScreenSize:
    """What a PNG's header says; the picture is not decoded. Raises ImageError."""
    with _open(png) as image:
        return ScreenSize(*image.size)


def opened(png: bytes) -> Image.Image:
    """The decoded picture in RGB. Raises ImageError; an image with more than MAX_PIXELS is not decoded."""
    with _open(png) as image:
        return image.convert("RGB")


@contextmanager
def _open(png: bytes) -> Iterator[Image.Image]:
    """Within, what Pillow raises is an ImageError."""
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ImageError(f"has {image.width} x {image.height} pixels, which are too many")
            yield image
    except (ImageError, MemoryError):
        raise  # out of memory is no fault of the bytes
    except UnidentifiedImageError:  # its text names an object of this process
        raise ImageError("is no PNG image") from None
    except Exception as error:  # Pillow raises many kinds, like IndexError for an empty chunk
        raise ImageError(f"is no PNG image ({error})") from None
