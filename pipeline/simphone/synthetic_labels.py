"""What is written on synthetic screens: names that apps show, pairs as they form them, and any two words."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

from simphone import generations, lexicon, words
from simphone.words import Words

Pair = tuple[str, str]

SINGLE: Final = (
    *words.APPS, *words.SITES, *words.COLOURS, "search", "go", "send", "save", "new", "delete", "alarm",
    "later", "ok", "rate", "open", "close", "add to cart", "message", "done",
    *lexicon.MORE_APPS, *lexicon.SHOP_SITES, *lexicon.CONTROLS,
)  # fmt: skip
"""Labels that stand alone."""
PAIRED: Final[tuple[tuple[Words, Words], ...]] = (
    (words.COLOURS, words.NOUNS),
    (words.SWITCHES, words.SWITCH_KINDS),
    (words.FIRST_NAMES, words.LAST_NAMES),
    (words.HOURS, words.HALVES),
    (lexicon.FIRST_NAMES, lexicon.LAST_NAMES),
    (lexicon.OCCASIONS, lexicon.MEETINGS),
    (lexicon.MOODS, lexicon.THEMES),
    (lexicon.SKILLS, lexicon.SHOWS),
    (lexicon.QUARTERS, lexicon.VENUES),
    (lexicon.MATTERS, lexicon.LETTERS),
    (lexicon.SUBJECTS, lexicon.PRODUCTS),
    (lexicon.BRANDS, lexicon.GOODS),
)
OFTEN: Final = (6, 6, 6, 3, 2, 2, 2, 2, 2, 2, 2, 2)
"""How often each of PAIRED comes. Those of the first apps are asked for by more tasks."""
TIMES: Final = tuple(" ".join(pair) for pair in words.pairs(words.HOURS, words.HALVES))
SHORT: Final = tuple(name for name in SINGLE if " " not in name and len(name) <= 9)
"""Words that fit under an icon."""
EVERY: Final = tuple(dict.fromkeys((*words.ALL, *lexicon.ALL)))
"""Every word of the phone."""
NEWER: Final = tuple(
    dict.fromkeys(word for name in generations.NAMES.values() for word in name.split() if word not in EVERY)
)
"""Words that newer generations of the UI alone show."""
FREE: Final = (*EVERY, *NEWER, *(word for pair in PAIRED for side in pair for word in side))
"""Words for labels of any two words; those that apps use in pairs count twice."""
SHORTEST: Final = (*(word for word in EVERY if len(word) <= 4), *(*words.HOURS, *words.HALVES) * 10)
"""Two of them fit on a tile. Those of which apps make times come more often."""


class Labels:
    """Labels that occur once on a screen, so that a name is one place.

    free: share of the labels that are any two words and not the apps' pairs. A model that sees only the pairs of a few
    lists learns which word follows which, and misreads a held-out pair. more: words for such labels besides the
    phone's own.
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
        """At most `count` times of the day, or, on a share `free` of the screens, pairs of any short words."""
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
        first, second = self._rng.choices(PAIRED, OFTEN)[0]
        return self._pair(first, second)
