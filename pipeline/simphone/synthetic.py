"""Synthetic screens: widgets of every kind, at random places, with random labels.

A base model learns on them to find a named widget. They share the apps' primitives and words, not their layouts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from PIL import Image

from simphone.canvas import Letter, draw, letters
from simphone.element import HEIGHT, LIGHT, NAMED, Colour, Element, Elements, keyboard, title
from simphone.generations import renamed
from simphone.popups import POPUPS
from simphone.synthetic_labels import Labels, Pair
from simphone.synthetic_parts import ANYWHERE, DARK, ON_LIGHT


@dataclass(frozen=True, slots=True)
class Synthetic:
    """An RGB image of 128x256, the elements that can be tapped, and the letters on it."""

    image: Image.Image
    elements: Elements
    letters: Sequence[Letter]


NIGHT: Final[Colour] = (25, 25, 55)
BACKGROUNDS: Final[tuple[Colour, ...]] = (LIGHT, LIGHT, LIGHT, LIGHT, LIGHT, (214, 226, 238), (235, 235, 225), NIGHT)
KEYS: Final = ("go", "send", "save", "new")
OUTLINED: Final = 0.15
"""Share of screens whose surfaces are drawn as outlines."""
RENAMED: Final = 0.3
"""Share of screens with the names that newer generations of the UI have."""


def synthetic_screen(
    rng: random.Random, forbidden: frozenset[Pair], free: float = 0.0, more: Sequence[str] = ()
) -> Synthetic:
    """A screen, on which elements that can be named have a `target`.

    forbidden: pairs of words that no element with a target has as its label. Their labels are unique.
    free: share of the labels that are any two words, of the phone or of `more`.
    """
    background = rng.choice(BACKGROUNDS)
    labels = Labels(rng, forbidden, free, more)
    top = 0
    behind: list[Element] = []
    if rng.random() < 0.7:
        behind.append(title(labels.any(), _bar_colour(rng)))
        top = 24
    bottom = HEIGHT
    if rng.random() < 0.2:
        for name in labels.of(KEYS, 1):
            behind += keyboard(name, name)
        bottom = 160
    parts = {LIGHT: ON_LIGHT, NIGHT: DARK}.get(background, ANYWHERE)
    while (left := bottom - top) >= 40:
        part = rng.choice(parts)(rng, labels, top, left)
        behind += part
        top = max((element.box[3] for element in part), default=top) + rng.choice((0, 0, 8, 16) if part else (8, 16))
    if rng.random() < OUTLINED:
        behind = [replace(element, outlined=True) for element in behind]
    names = _renamed if rng.random() < RENAMED else tuple
    behind = [*names(behind)]
    if rng.random() < 0.15:
        dialog = tuple(names(POPUPS[rng.choice(sorted(POPUPS))]))
        return Synthetic(draw((*behind, *dialog), background, len(behind)), dialog, letters((*behind, *dialog)))
    return Synthetic(draw(tuple(behind), background), tuple(behind), letters(tuple(behind)))


def _renamed(elements: Sequence[Element]) -> list[Element]:
    """With newer names, but for rows, whose words are not the UI's, and a name that stands there already."""
    labels = {element.label for element in elements if element.target}
    return [
        element if element.kind == "row" or (new := renamed(element)).label in labels else new for element in elements
    ]


def _bar_colour(rng: random.Random) -> Colour:
    return rng.choice((*NAMED.values(), *((rng.randrange(256), rng.randrange(256), rng.randrange(256)),) * 4))
