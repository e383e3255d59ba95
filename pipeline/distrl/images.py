"""Screenshots as pictures: phones, policy, judges and offline tools take the same ones, up to one size."""

from __future__ import annotations

import io
from typing import Final

from PIL import Image

MAX_PIXELS: Final = 32_000_000
"""Width times height. A header may claim a size whose decoding would take all memory; no phone's screen has a half of
this. One limit for all: a screenshot that a worker took and the policy refused would spoil every episode it is in."""


class ImageError(ValueError):
    """Bytes that are no PNG image, or a larger one than is taken; the text says which."""


def opened(png: bytes) -> Image.Image:
    """The picture in RGB, decoded. Raises ImageError; nothing is decoded of one with more than MAX_PIXELS."""
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ImageError(f"has {image.width} x {image.height} pixels, which are too many")
            return image.convert("RGB")
    except (ImageError, MemoryError):
        raise  # a machine without memory says nothing of the bytes
    except Exception as error:  # Pillow raises whatever its parsers meet: IndexError where a chunk is empty
        raise ImageError(f"is no PNG image ({error})") from None
