"""Screenshots as every policy decodes them."""

from __future__ import annotations

from PIL import Image

from distrl.errors import PolicyError
from distrl.images import ImageError, opened


def decoded(png: bytes) -> Image.Image:
    """The picture in RGB. Raises PolicyError for what is no PNG, or too large."""
    try:
        return opened(png)
    except ImageError as error:
        raise PolicyError("screenshot", str(error), "check the device and its screen size") from None
