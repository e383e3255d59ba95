"""The parts of synthetic screens: widgets of every kind that apps have, and none of their layouts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from simphone import lexicon, words
from simphone.apps.lists import QUIET
from simphone.element import LIGHT, NAMED, WIDTH, Colour, Element, search_box, title
from simphone.synthetic_labels import SHORT, Labels

Part = Callable[[random.Random, Labels, int, int], list[Element]]
"""Draws from the generator, takes labels, the top in px and the space below it, and gives elements in there."""

CONTROLS: Final = (*words.CONTROLS, *lexicon.CONTROLS)
CORNERS: Final = ("new", "close", "send", "save", "go", "add", "cart")
TABS: Final = (
    "clock", "alarm", *words.APPS[:3], "sale", "music", "video", "best", "price", "walk", "drive", "pad", "recent",
)  # fmt: skip
FIELDS: Final = ("search", "message", "type", "name", "event")
ROUNDS: Final = ("start", "stop", "reset", "end", *map(str, range(10)))
CAPTIONS: Final = ("unread", "update", "paused", "$54", "$210")
DAYS: Final = tuple(str(day) for day in range(1, 32))


def _colour(rng: random.Random) -> Colour:
    return rng.choice((*NAMED.values(), *((rng.randrange(256), rng.randrange(256), rng.randrange(256)),) * 4))


def _rows(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    height, kind = min(rng.choice((32, 40, 48)), space), rng.choice(("row", "toggle"))
    most = space // height
    count = rng.randint((most + 1) // 2, most)
    shown = [
        Element(
            kind, (0, top + i * height, WIDTH, top + (i + 1) * height), name, "x", on=rng.random() < 0.5, colour=LIGHT
        )
        for i, name in enumerate(labels.any() for _ in range(count))
    ]
    if kind == "toggle" and rng.random() < 0.5:
        shown.append(_scroll_bar(rng, top, count * height))
    return shown


def _scroll_bar(rng: random.Random, top: int, height: int) -> Element:
    """Of a list that is longer than its `height` px below `top`."""
    begin = top + rng.randrange(height // 4)
    return Element("scroll", (WIDTH - 4, begin, WIDTH, begin + rng.randrange(height // 3, height * 2 // 3)))


def _ranks(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    height, about = min(rng.choice((32, 40, 48)), space), labels.any()
    ranks = labels.of([f"result {rank}" for rank in words.RANKS[: space // height]], 4)
    return [
        Element(
            "row",
            (0, top + i * height, WIDTH, top + (i + 1) * height),
            rank,
            "x",
            text=f"{rank.split()[1]}  {about}",
            colour=LIGHT,
        )
        for i, rank in enumerate(sorted(ranks))
    ]


def _icons(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    height = rng.choice((56, 60))
    if space < height:
        return _buttons(rng, labels, top, space)
    count = 2 * rng.randint(1, space // height)
    names = labels.of((*words.APPS, *lexicon.MORE_APPS), rng.randint(1, count))
    names += labels.of(SHORT, count - len(names))
    rng.shuffle(names)
    return [
        Element(
            "icon",
            (i % 2 * 64, top + i // 2 * height, i % 2 * 64 + 64, top + i // 2 * height + 56),
            name,
            "x",
            colour=_colour(rng),
        )
        for i, name in enumerate(names)
    ]


def _buttons(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    columns, height = rng.choice((1, 1, 2)), min(rng.choice((32, 40, 48)), space)
    width = WIDTH // columns
    return [
        Element("button", (c * width + 4, top, (c + 1) * width - 4, top + height), name, "x", colour=_colour(rng))
        for c, name in enumerate([labels.any()] if columns == 1 else labels.of(CONTROLS, 2))
    ]


def _corner(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    left, size = rng.choice((0, 32, 64)), min(space, 48)
    return [
        Element(
            "cross" if name == "close" else "button", (left, top, left + 64, top + size), name, "x", colour=_colour(rng)
        )
        for name in labels.of(CORNERS, 1)
    ]


def _tiles(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    rows, colour = rng.randint(1, max(1, min(6, space // 32))), rng.choice(((60, 60, 92), (230, 230, 235)))
    return [
        Element(
            "tile",
            (i % 2 * 64, top + i // 2 * 32, i % 2 * 64 + 64, top + i // 2 * 32 + 32),
            name,
            "x",
            on=rng.random() < 0.2,
            colour=colour,
        )
        for i, name in enumerate(labels.tiles(2 * rows))
    ]


def _tabs(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    colour, chosen = _colour(rng), rng.randrange(2)
    return [
        Element("tab", (c * 64, top, c * 64 + 64, top + 32), name, "x", on=c == chosen, colour=colour)
        for c, name in enumerate(labels.of(TABS, 2))
    ]


def _products(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    height = rng.choice((48, 56))
    if space < height:
        return _buttons(rng, labels, top, space)
    return [
        Element("product", (0, top + i * height, WIDTH, top + (i + 1) * height), name, "x", colour=NAMED[name])
        for i, name in enumerate(labels.of(words.COLOURS, min(3, space // height)))
    ]


def _field(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    text = labels.any() if rng.random() < 0.4 else ""
    return [search_box(text, rng.random() < 0.5, top + 4, "x", name) for name in labels.of(FIELDS, 1)]


def _entries(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    """Rows of a list that is longer than the screen, some with a caption."""
    count = rng.randint(1, max(1, min(6, space // 32)))
    shown: list[Element] = []
    for at in range(count):
        box, name = (0, top + 32 * at, WIDTH, top + 32 * (at + 1)), labels.any()
        shown.append(Element("row", box, name, "x", text=name, colour=LIGHT))
        if rng.random() < 0.2:
            shown.append(Element("caption", box, text=rng.choice(CAPTIONS), colour=QUIET))
    return [*shown, _scroll_bar(rng, top, 32 * count)]


def _month(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    """A month's name and its days, as far as there is room."""
    name = title(f"{rng.choice(lexicon.MONTHS)} {rng.randrange(2020, 2030)}", _colour(rng), top)
    first, top, space = rng.randrange(7), top + 24, space - 24
    places = [(first + i, day) for i, day in enumerate(DAYS)]
    free = set(labels.of(DAYS, len(DAYS)))
    days = [
        Element(
            "day",
            (1 + at % 7 * 18, top + at // 7 * 32, 19 + at % 7 * 18, top + 32 + at // 7 * 32),
            day,
            "x",
            on=rng.random() < 0.1,
            colour=_colour(rng),
        )
        for at, day in places
        if day in free and (at // 7 + 1) * 32 <= space
    ]
    return [name, *days] if days else []


def _rounds(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    names = labels.of(ROUNDS, rng.randint(1, 3))
    width = WIDTH // max(1, len(names))
    side = min(rng.choice((36, 44)), space, width)
    return [
        Element(
            "round",
            (at * width + (width - side) // 2, top, at * width + (width + side) // 2, top + side),
            name,
            "x",
            colour=_colour(rng),
        )
        for at, name in enumerate(names)
    ]


def _heading(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    """Words that cannot be touched."""
    return [Element("text", (0, top, WIDTH, top + 24), text=labels.any(), colour=rng.choice((QUIET, _colour(rng))))]


DARK: Final[tuple[Part, ...]] = (_buttons, _corner, _tiles, _tabs, _field, _rounds)
ANYWHERE: Final[tuple[Part, ...]] = (*DARK, _icons, _icons)
ON_LIGHT: Final[tuple[Part, ...]] = (*ANYWHERE, *(_rows,) * 5, *(_entries,) * 4, _ranks, _products, _month, _heading)
"""Black text without a background is readable only on light screens. Rows are frequent: their labels of two words are
the hardest to tell apart."""
