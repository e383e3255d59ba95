"""Contact sheets of screens, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from PIL import Image

from simphone.machine import Event, Key, Swipe, Tap, Text, draw, fresh, reduce, widgets
from simphone.popups import POPUPS
from simphone.state import State

GAP: Final = 6
TOUR: Final = (
    "settings", "swipe",
    "HOME", "browser", "field", "type", "ENTER", "2",
    "HOME", "shop", "etsy", "field", "type", "ENTER", "red", "cart",
    "HOME", "clock", "alarm", "7 am",
    "HOME", "messages", "first", "field", "type", "send",
    "HOME", "notes", "new", "field", "type",
    "HOME", "clock", "stopwatch", "start", "stop", "BACK", "timer", "1 min", "start", "stop",
    "HOME", "mail", "first", "delete", "delete", "new", "swipe", "first", "field", "type", "send",
    "HOME", "maps", "allow", "field", "type hill park", "ENTER", "first", "star", "directions", "walk",
    "HOME", "turn", "contacts", "swipe", "first", "call", "allow", "end",
    "HOME", "turn", "contacts", "new", "field", "type kim west",
    "HOME", "turn", "phone", "key 5", "recent",
    "HOME", "turn", "calendar", "turn", "day 14", "new", "field", "type team lunch", "save",
    "HOME", "turn", "media", "first", "pause", "BACK", "video",
    "HOME", "turn", "store", "field", "type photo hub", "ENTER", "first", "install", "wait", "wait", "wait", "wait",
    "wait", "open",
    "HOME", "browser", "field", "type costco.com", "ENTER", "accept", "field", "type nova tent", "ENTER", "swipe",
    "price", "first", "add", "cart", "first",
    "HOME", "browser", "field", "type newegg.com", "ENTER", "refuse",
)  # fmt: skip
"""Steps: keys, swipes up ("swipe") and to the left ("turn"), texts, taps on widgets by target or on the first of rows.
Each step changes the phone; loading screens are waited for in between."""
TYPED: Final = "red lamp"
ROWS: Final = ("row", "toggle")
WAIT: Final = Key("VOLUME_UP")
"""A key that does nothing."""


def tour(generation: int = 0, seed: int = 0) -> list[Image.Image]:
    """Every screen of TOUR, once, and each pop-up, on a phone of that generation."""
    states = list(walk(generation, seed))
    states += [replace(states[0], dialog=name) for name in sorted(POPUPS)]
    shown = {image.tobytes(): image for image in map(draw, states)}
    return list(shown.values())


def walk(generation: int = 0, seed: int = 0) -> Iterator[State]:
    """The states of a phone without pop-ups: at first, after each step of TOUR, and after each waiting event."""
    state = fresh(seed, {}, 0.0, generation)
    yield state
    for step in TOUR:
        state = reduce(state, event_for(state, step))
        yield state
        while state.loading:
            state = reduce(state, WAIT)
            yield state


def event_for(state: State, step: str) -> Event:
    """The state after a step of a tour. Raises LookupError if the screen has no such target."""
    match step.split(" ", 1):
        case ["HOME" | "ENTER" | "BACK"]:
            return Key(step)
        case ["swipe"]:
            return Swipe(64, 200, 64, 50)
        case ["turn"]:
            return Swipe(110, 128, 20, 128)
        case ["wait"]:
            return WAIT
        case ["type", *text]:
            return Text(text[0] if text else TYPED)
    for element in widgets(state):
        if element.target == step or (step == "first" and element.kind in ROWS):
            return Tap(*element.centre)
    raise LookupError(f"{state.screen} has no {step!r}")


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
