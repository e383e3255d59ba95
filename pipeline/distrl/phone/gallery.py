"""Contact sheets of screens, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from PIL import Image

from distrl.phone.machine import Key, Swipe, Tap, Text, draw, fresh, reduce, widgets
from distrl.phone.popups import POPUPS
from distrl.phone.state import State

GAP: Final = 6
TOUR: Final = (
    "settings", "swipe",
    "HOME", "browser", "field", "type", "ENTER", "2",
    "HOME", "shop", "etsy", "field", "type", "ENTER", "red", "cart",
    "HOME", "clock", "alarm", "7 am",
    "HOME", "messages", "contact", "field", "type", "send",
    "HOME", "notes", "new", "field", "type",
)  # fmt: skip
"""What a visitor does: keys, widgets by their target, a swipe, a text. Each step shows another screen."""
TYPED: Final = "red lamp"


def tour(generation: int = 0, seed: int = 0) -> list[Image.Image]:
    """The home screen, what every step of TOUR shows, and each pop-up, on a phone of that generation."""
    states = list(_walk(fresh(seed, {}, 0.0, generation)))
    states += [replace(states[0], dialog=name) for name in sorted(POPUPS)]
    return [draw(state) for state in states]


def _walk(state: State) -> Iterator[State]:
    yield state
    for step in TOUR:
        match step:
            case "HOME" | "ENTER":
                state = reduce(state, Key(step))
            case "swipe":
                state = reduce(state, Swipe(64, 200, 64, 50))
            case "type":
                state = reduce(state, Text(TYPED))
            case _:
                state = reduce(state, _touch(state, step))
        if step != "HOME":
            yield state


def _touch(state: State, target: str) -> Tap:
    """A tap on the widget with that target; on the first one for a "contact", whose names chance draws."""
    found = next(element for element in widgets(state) if target in (element.target, "contact"))
    return Tap(*found.centre)


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
