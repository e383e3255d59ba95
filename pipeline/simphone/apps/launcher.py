"""The launcher: a page of eight icons in one of a few arrangements, then the other apps; a swipe turns the page."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup
from simphone.apps.store import colour_of, installed
from simphone.element import BLUE, GREEN, GREY, NAVY, ORANGE, RED, VIOLET, YELLOW, Colour, Element, Elements
from simphone.lexicon import MORE_APPS
from simphone.state import HOME, AppData, State, words_of
from simphone.words import APPS

COLOURS: Final[dict[str, Colour]] = {
    **dict(zip(APPS, (GREY, BLUE, ORANGE, NAVY, GREEN, YELLOW, RED, VIOLET), strict=True)),
    **dict(zip(MORE_APPS, (ORANGE, GREEN, RED, VIOLET, (20, 140, 130)), strict=True)),
}
PER_PAGE: Final = len(APPS)

ARRANGEMENTS: Final = tuple(tuple(random.Random(number).sample(APPS, len(APPS))) for number in range(4))
"""Few, as by vendors: eight shuffled icons have 40,320 orders, too many to learn from 128 demonstrations."""


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"order": rng.choice(ARRANGEMENTS)}


def page_of(state: State) -> int:
    """The number of the page in front: the first is "launcher/home", the others are "launcher/page2" and so on."""
    return 1 if state.screen == HOME else int(state.screen.removeprefix("launcher/page"))


def icons(state: State, page: int) -> tuple[str, ...]:
    """The apps on a page; none after the last page."""
    if page == 1:
        return words_of(state.of("launcher")["order"])
    return (*MORE_APPS, *installed(state))[(page - 2) * PER_PAGE : (page - 1) * PER_PAGE]


def elements(state: State) -> Elements:
    return tuple(
        Element(
            "icon",
            (i % 2 * 64, 8 + i // 2 * 60, i % 2 * 64 + 64, 64 + i // 2 * 60),
            name,
            name,
            colour=COLOURS[name] if name in COLOURS else colour_of(name),
        )
        for i, name in enumerate(icons(state, page_of(state)))
    )


def tap(state: State, target: str) -> State:
    """Does nothing here: machine.py opens the app of an icon."""
    return state


def swipe(state: State, direction: str) -> State:
    after = page_of(state) + 1
    if direction == "left" and icons(state, after):
        return state.goto(f"launcher/page{after}")
    return state.leave() if direction == "right" and state.back else state


APP: Final = App("launcher", HOME, fresh, elements, tap, swipe=swipe, background=(214, 226, 238))
