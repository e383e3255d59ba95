"""Screens that no app has: widgets of every kind, at random places, with random labels.

A base model learns on them to find a named widget. They share the apps' primitives and words, never their layouts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from PIL import Image

from distrl.phone import words
from distrl.phone.canvas import draw
from distrl.phone.element import HEIGHT, LIGHT, NAMED, WIDTH, Colour, Element, Elements, keyboard, search_box, title
from distrl.phone.popups import POPUPS

Pair = tuple[str, str]
Labels = Callable[[], str]

NIGHT: Final[Colour] = (25, 25, 55)
BACKGROUNDS: Final[tuple[Colour, ...]] = (LIGHT, LIGHT, (214, 226, 238), (235, 235, 225), NIGHT)
SINGLE: Final = (
    *words.APPS, *words.SITES, *words.COLOURS, "search", "go", "send", "save", "new", "delete", "alarm", "clock",
    "later", "ok", "rate", "open", "close", "add to cart", "message", "done",
)  # fmt: skip


def synthetic_screen(rng: random.Random, forbidden: frozenset[Pair]) -> tuple[Image.Image, Elements]:
    """An RGB image of 128x256 and the widgets that can be named on it, each with a `target`.

    forbidden: pairs of words that no widget is labelled with.
    """
    background = rng.choice(BACKGROUNDS)

    def label() -> str:
        return _label(rng, forbidden)

    top = 0
    behind: list[Element] = []
    if rng.random() < 0.7:
        behind.append(title(label(), _colour(rng)))
        top = 24
    bottom = HEIGHT
    if rng.random() < 0.2:
        name = rng.choice(("go", "send", "save", "new"))
        behind += keyboard(name, name)
        bottom = 160
    parts = {LIGHT: _PARTS_LIGHT, NIGHT: _PARTS_DARK}.get(background, _PARTS)
    while (left := bottom - top) >= 40:
        part = rng.choice(parts)(rng, label, top, left)
        behind += part
        top = max((element.box[3] for element in part), default=top) + rng.choice((0, 0, 8, 16))
    if rng.random() < 0.15:
        dialog = POPUPS[rng.choice(sorted(POPUPS))]
        return draw((*behind, *dialog), background, len(behind)), _named(dialog)
    return draw(tuple(behind), background), _named(tuple(behind))


def _named(elements: Elements) -> Elements:
    return tuple(element for element in elements if element.target)


def _colour(rng: random.Random) -> Colour:
    return rng.choice((*NAMED.values(), *((rng.randrange(256), rng.randrange(256), rng.randrange(256)),) * 4))


def _label(rng: random.Random, forbidden: frozenset[Pair]) -> str:
    if rng.random() < 0.3:
        return rng.choice(SINGLE)
    first, second = rng.choice(
        (
            (words.COLOURS, words.NOUNS),
            (words.SWITCHES, words.SWITCH_KINDS),
            (words.FIRST_NAMES, words.LAST_NAMES),
            (words.HOURS, words.HALVES),
        )
    )
    while (pair := (rng.choice(first), rng.choice(second))) in forbidden:
        pass
    return " ".join(pair)


def _rows(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    height, kind = rng.choice((32, 40, 48)), rng.choice(("row", "toggle"))
    count = rng.randint(1, max(1, space // height))
    return [
        Element(
            kind, (0, top + i * height, WIDTH, top + (i + 1) * height), name, "x", on=rng.random() < 0.5, colour=LIGHT
        )
        for i, name in enumerate(label() for _ in range(count))
    ]


def _ranks(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    height, about = rng.choice((32, 40, 48)), label()
    ranks = words.RANKS[: max(1, min(4, space // height))]
    return [
        Element("row", (0, top + i * height, WIDTH, top + (i + 1) * height), f"result {rank}", "x",
                text=f"{rank}  {about}", colour=LIGHT)
        for i, rank in enumerate(ranks)
    ]  # fmt: skip


def _icons(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    height = rng.choice((56, 60))
    if space < height:
        return _buttons(rng, label, top, space)
    names = [rng.choice(words.APPS) if rng.random() < 0.6 else label() for _ in range(2 * (space // height))]
    return [
        Element("icon", (i % 2 * 64, top + i // 2 * height, i % 2 * 64 + 64, top + i // 2 * height + 56), name, "x",
                colour=_colour(rng))
        for i, name in enumerate(names[: 2 * rng.randint(1, space // height)])
    ]  # fmt: skip


def _buttons(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    columns, height = rng.choice((1, 1, 2)), min(rng.choice((32, 40, 48)), space)
    width = WIDTH // columns
    return [
        Element("button", (c * width + 4, top, (c + 1) * width - 4, top + height), name, "x", colour=_colour(rng))
        for c, name in enumerate([label()] if columns == 1 else rng.sample(words.CONTROLS, 2))
    ]


def _corner(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    left, size = rng.choice((0, 32, 64)), min(space, 48)
    name = rng.choice(("new", "close", "send", "save", "go", "add"))
    kind = "cross" if name == "close" else "button"
    return [Element(kind, (left, top, left + 64, top + size), name, "x", colour=_colour(rng))]


def _tiles(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    rows, colour = rng.randint(1, max(1, min(4, space // 32))), rng.choice(((60, 60, 92), (230, 230, 235)))
    names = list(dict.fromkeys(_time(label) for _ in range(2 * rows)))
    return [
        Element("tile", (i % 2 * 64, top + i // 2 * 32, i % 2 * 64 + 64, top + i // 2 * 32 + 32), name, "x",
                on=rng.random() < 0.2, colour=colour)
        for i, name in enumerate(names)
    ]  # fmt: skip


def _time(label: Labels) -> str:
    """A label that is a time of day: only those fit half a row."""
    while not (name := label()).endswith(words.HALVES):
        pass
    return name


def _tabs(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    names, colour = rng.sample(("clock", "alarm", *words.APPS[:3], "sale"), 2), _colour(rng)
    return [
        Element("tab", (c * 64, top, c * 64 + 64, top + 32), name, "x", on=c == 0, colour=colour)
        for c, name in enumerate(names)
    ]


def _products(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    height = rng.choice((48, 56))
    if space < height:
        return _buttons(rng, label, top, space)
    return [
        Element("product", (0, top + i * height, WIDTH, top + (i + 1) * height), name, "x", colour=NAMED[name])
        for i, name in enumerate(rng.sample(words.COLOURS, min(3, space // height)))
    ]


def _field(rng: random.Random, label: Labels, top: int, space: int) -> list[Element]:
    text = label() if rng.random() < 0.4 else ""
    return [search_box(text, rng.random() < 0.5, top + 4, "x", rng.choice(("search", "message", "type")))]


_PARTS_DARK: Final = (_buttons, _corner, _tiles, _tiles, _tabs, _field)
_PARTS: Final = (*_PARTS_DARK[:2], *_PARTS_DARK[3:], _icons, _icons, _icons)
_PARTS_LIGHT: Final = (*_PARTS, _rows, _rows, _rows, _rows, _ranks, _products)
"""Black text without a ground of its own is read on light screens alone."""
