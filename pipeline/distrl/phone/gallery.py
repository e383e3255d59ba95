"""Contact sheets of screens, for people."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image

GAP = 6


def contact_sheet(images: Sequence[Image.Image], columns: int, scale: int = 1) -> Image.Image:
    """The images in rows of `columns`, each `scale` times as large. Raises ValueError for no image."""
    if not images:
        raise ValueError("no images")
    width, height = images[0].width * scale, images[0].height * scale
    rows = -(-len(images) // columns)
    sheet = Image.new("RGB", (columns * (width + GAP) + GAP, rows * (height + GAP) + GAP), (120, 124, 130))
    for number, image in enumerate(images):
        place = (GAP + number % columns * (width + GAP), GAP + number // columns * (height + GAP))
        sheet.paste(image.resize((width, height), Image.Resampling.NEAREST), place)
    return sheet
