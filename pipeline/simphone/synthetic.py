"""Synthetic screens: widgets of every kind, at random places, with random labels.

A base model learns on them to find a named widget. They share the apps' primitives and words, not their layouts.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from PIL import Image

from simphone import words
from simphone.canvas import Letter, draw, letters
from simphone.element import HEIGHT, LIGHT, NAMED, WIDTH, Colour, Element, Elements, keyboard, search_box, title
from simphone.popups import POPUPS

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Synthetic:
    """An RGB image of 128x256, the elements that can be tapped, and the letters on it."""

    image: Image.Image
    elements: Elements
    letters: Sequence[Letter]


class Labels:
    """Labels that occur once on a screen, so that a name is one place.

    free: share of the labels that are any two words and not the apps' pairs. A model that sees only the pairs of a few
    lists learns which word follows which, and misreads a held-out pair. more: words for such labels besides those of
    the phone's first apps.
    """

    def __init__(self, rng: random.Random, forbidden: frozenset[Pair], free: float, more: Sequence[str] = ()) -> None:
        self._rng = rng
        self._forbidden = forbidden
        self._free = free
        self._any = (*FREE, *more)
        self._used: set[str] = set()

    def any(self) -> str:
        """One word, or two that are not a forbidden pair."""
        while (name := self._draw()) in self._used or tuple(name.split()) in self._forbidden:
            pass
        self._used.add(name)
        return name

    def of(self, names: Iterable[str], count: int) -> list[str]:
        """At most `count` of `names`: those that are still free."""
        free = [name for name in names if name not in self._used and tuple(name.split()) not in self._forbidden]
        chosen = self._rng.sample(free, min(count, len(free)))
        self._used.update(chosen)
        return chosen

    def tiles(self, count: int) -> list[str]:
        """At most `count` times of the day or, on a share `free` of the screens, pairs of any short words."""
        names = TIMES
        if self._rng.random() < self._free:
            names = tuple(dict.fromkeys(self._pair(SHORTEST, SHORTEST) for _ in range(count)))
        return self.of(names, count)

    def _pair(self, first: Sequence[str], second: Sequence[str]) -> str:
        return f"{self._rng.choice(first)} {self._rng.choice(second)}"

    def _draw(self) -> str:
        if self._rng.random() < self._free:
            return self._pair(self._any, self._any)
        if self._rng.random() < 0.2:
            return self._rng.choice(SINGLE)
        first, second = self._rng.choices(PAIRED, (2, 2, 2, 1))[0]
        return self._pair(first, second)


NIGHT: Final[Colour] = (25, 25, 55)
BACKGROUNDS: Final[tuple[Colour, ...]] = (LIGHT, LIGHT, LIGHT, LIGHT, LIGHT, (214, 226, 238), (235, 235, 225), NIGHT)
SINGLE: Final = (
    *words.APPS, *words.SITES, *words.COLOURS, "search", "go", "send", "save", "new", "delete", "alarm",
    "later", "ok", "rate", "open", "close", "add to cart", "message", "done",
)  # fmt: skip
PAIRED: Final = (
    (words.COLOURS, words.NOUNS),
    (words.SWITCHES, words.SWITCH_KINDS),
    (words.FIRST_NAMES, words.LAST_NAMES),
    (words.HOURS, words.HALVES),
)
TIMES: Final = tuple(" ".join(pair) for pair in words.pairs(words.HOURS, words.HALVES))
SHORT: Final = tuple(name for name in SINGLE if " " not in name)
"""Words that fit under an icon."""
FREE: Final = (*words.ALL, *(word for pair in PAIRED for side in pair for word in side))
"""Words for labels of any two words; those that apps use in pairs count twice."""
SHORTEST: Final = (*(word for word in words.ALL if len(word) <= 4), *(*words.HOURS, *words.HALVES) * 5)
"""Two of them fit on a tile. Those of which apps make times come more often."""
CORNERS: Final = ("new", "close", "send", "save", "go", "add")
KEYS: Final = ("go", "send", "save", "new")
TABS: Final = ("clock", "alarm", *words.APPS[:3], "sale")
FIELDS: Final = ("search", "message", "type")


def synthetic_screen(
    rng: random.Random, forbidden: frozenset[Pair], free: float = 0.0, more: Sequence[str] = ()
) -> Synthetic:
    """A screen, on which elements that can be named have a `target`.

    forbidden: pairs of words that no element with a target has as its label. Their labels are unique.
    free: share of the labels that are any two words, of the phone's first apps or of `more`.
    """
    background = rng.choice(BACKGROUNDS)
    labels = Labels(rng, forbidden, free, more)
    top = 0
    behind: list[Element] = []
    if rng.random() < 0.7:
        behind.append(title(labels.any(), _colour(rng)))
        top = 24
    bottom = HEIGHT
    if rng.random() < 0.2:
        for name in labels.of(KEYS, 1):
            behind += keyboard(name, name)
        bottom = 160
    parts = {LIGHT: _PARTS_LIGHT, NIGHT: _PARTS_DARK}.get(background, _PARTS)
    while (left := bottom - top) >= 40:
        part = rng.choice(parts)(rng, labels, top, left)
        behind += part
        top = max((element.box[3] for element in part), default=top) + rng.choice((0, 0, 8, 16) if part else (8, 16))
    if rng.random() < 0.15:
        dialog = POPUPS[rng.choice(sorted(POPUPS))]
        return Synthetic(draw((*behind, *dialog), background, len(behind)), dialog, letters((*behind, *dialog)))
    return Synthetic(draw(tuple(behind), background), tuple(behind), letters(tuple(behind)))


def _colour(rng: random.Random) -> Colour:
    return rng.choice((*NAMED.values(), *((rng.randrange(256), rng.randrange(256), rng.randrange(256)),) * 4))


def _rows(rng: random.Random, labels: Labels, top: int, space: int) -> list[Element]:
    height, kind = min(rng.choice((32, 40, 48)), space), rng.choice(("row", "toggle"))
    most = space // height
    count = rng.randint((most + 1) // 2, most)
    return [
        Element(
            kind, (0, top + i * height, WIDTH, top + (i + 1) * height), name, "x", on=rng.random() < 0.5, colour=LIGHT
        )
        for i, name in enumerate(labels.any() for _ in range(count))
    ]


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
    names = labels.of(words.APPS, rng.randint(1, count))
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
        for c, name in enumerate([labels.any()] if columns == 1 else labels.of(words.CONTROLS, 2))
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


_PARTS_DARK: Final = (_buttons, _corner, _tiles, _tabs, _field)
_PARTS: Final = (*_PARTS_DARK, _icons, _icons)
_PARTS_LIGHT: Final = (*_PARTS, *(_rows,) * 7, _ranks, _products)
"""Black text without a background is readable only on light screens. Rows are frequent: their labels of two words are
the hardest to tell apart."""
