"""The phone's words and synthetic screens as the pre-training takes them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import numpy as np
from simphone import generations, lexicon, words
from simphone.canvas import ALPHABET
from simphone.element import HEIGHT, WIDTH, Element
from simphone.synthetic import Synthetic, synthetic_screen
from simphone.synthetic_labels import EVERY, NEWER
from simphone.words import Words

from distrl.policy.autoui.pretraining.examples import Language, Pair, Phrase, Target, TrainingScreen
from distrl.policy.autoui.tokenizer import WordTokenizer

VERBS: Final = ("touch", "tap", "press", "open")
MARKERS: Final = ("for", "up", "add", "buy", "saying", "note", "type", "write", *words.LAST_NAMES)
"""After a name stands what is to be said to its owner."""
COPIED: Final = (
    *words.COLOURS, *words.NOUNS, *words.COLOURS, *words.NOUNS,
    *words.FIRST_NAMES, *words.SWITCHES, *words.SWITCH_KINDS,
)  # fmt: skip
"""Words of entities, those that tasks of the first apps have people type twice as often."""
USES: Final[Mapping[str, tuple[str, ...]]] = {
    "settings": ("turn", "switch"),
    "browser": (
        "look up", "search for", "find out", "navigate", "weather", "rain", "news", "flights", "capital", "population",
        "currency", "language", "recipe", "recipes", "result", *lexicon.SHOP_SITES,
    ),
    "shop": (),
    "clock": ("alarm", "wake", "stopwatch", "timer"),
    "messages": ("message", "text", "tell"),
    "notes": ("note",),
    "mail": ("reply",),
    "maps": ("where", "way", "directions", "map", "cafe", "museum", "station", "library", "hotel", "bakery", "cinema"),
    "contacts": ("call", "contact", "talk"),
    "phone": (),
    "calendar": ("event", "events", "planned", "plans", *lexicon.MONTHS),
    "media": ("play", "song", "video", "listen", "hear", "music"),
    "store": ("install", "uninstall", "download", "update", "version", "app"),
}  # fmt: skip
"""Of each app what one says who wants what it does and does not name it."""


def phone_tokenizer(more: Words = ()) -> WordTokenizer:
    """The tokenizer of every word that the phone shows and the home suite says, and of `more`."""
    return WordTokenizer(tuple(dict.fromkeys((*EVERY, *NEWER, *more))))


def phone_language(forbidden: frozenset[Pair], typed: Words = (), more: Words = ()) -> Language:
    """What is asked in pre-training: words of entities and `typed` are copied, and others stand around."""
    copied = (*COPIED, *(word for word in typed if word not in {*VERBS, *MARKERS, *COPIED}))
    known = {*VERBS, *MARKERS, *copied}
    every = phone_tokenizer(more).words
    fillers = tuple(word for word in every if word not in known)
    known_as = {tuple(newer.split()): tuple(name.split()) for name, newer in generations.NAMES.items()}
    uses: dict[Phrase, tuple[Phrase, ...]] = {
        (app,): tuple(tuple(use.split()) for use in phrases if all(word in every for word in use.split()))
        for app, phrases in USES.items()
    }
    return Language(VERBS, MARKERS, copied, fillers, forbidden, known_as, uses)


def draw_screens(
    count: int, rng: random.Random, forbidden: frozenset[Pair], free: float = 0.0, more: Words = ()
) -> list[TrainingScreen]:
    """Synthetic screens, none with a widget that a forbidden pair names. free: share of labels of any two words."""
    return [_seen(synthetic_screen(rng, forbidden, free, more)) for _ in range(count)]


def _seen(drawn: Synthetic) -> TrainingScreen:
    pixels = np.ascontiguousarray(np.asarray(drawn.image, dtype=np.uint8).transpose(2, 0, 1))
    targets = tuple(target_of(widget) for widget in drawn.elements if widget.target)
    letters = [(ALPHABET.index(letter.character), int(letter.x), int(letter.y)) for letter in drawn.letters]
    inside = [letter for letter in letters if 0 <= letter[1] < WIDTH and 0 <= letter[2] < HEIGHT]
    return TrainingScreen(
        pixels,
        targets,
        typing=any(widget.kind == "keys" for widget in drawn.elements),
        letters=np.array(inside, dtype=np.int16).reshape(-1, 3),
        scrolls=any(widget.kind == "scroll" for widget in drawn.elements),
    )


def target_of(widget: Element) -> Target:
    """What the pre-training knows of a widget."""
    left, top, right, bottom = widget.box
    return Target(
        widget.kind,
        tuple(widget.label.split()),
        tuple(widget.shown.split()),
        (left / WIDTH, top / HEIGHT, right / WIDTH, bottom / HEIGHT),
        chosen=widget.kind == "tab" and widget.on,
    )
