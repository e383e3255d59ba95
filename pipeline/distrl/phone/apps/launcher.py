"""The launcher: eight icons in one of a few arrangements, and the plain screens of apps that only distract."""

from __future__ import annotations

import random
from typing import Final

from distrl.phone.apps.app import App, Setup
from distrl.phone.element import (
    BLUE,
    GREEN,
    GREY,
    NAVY,
    ORANGE,
    RED,
    VIOLET,
    YELLOW,
    Colour,
    Element,
    Elements,
    title,
)
from distrl.phone.state import AppData, State, words_of
from distrl.phone.words import APPS

COLOURS: Final[dict[str, Colour]] = dict(zip(APPS, (GREY, BLUE, ORANGE, NAVY, GREEN, YELLOW, RED, VIOLET), strict=True))


ARRANGEMENTS: Final = tuple(tuple(random.Random(number).sample(APPS, len(APPS))) for number in range(4))
"""As vendors ship them. Eight shuffled icons have 40,320 orders: from 128 demonstrations nobody learns which to tap."""


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"order": rng.choice(ARRANGEMENTS)}


def elements(state: State) -> Elements:
    if state.screen != "launcher/home":
        name = state.screen.partition("/")[2]
        return (title(name, COLOURS[name]), Element("lines", (8, 40, 120, 200)))
    return tuple(
        Element(
            "icon", (i % 2 * 64, 8 + i // 2 * 60, i % 2 * 64 + 64, 64 + i // 2 * 60), name, name, colour=COLOURS[name]
        )
        for i, name in enumerate(words_of(state.of("launcher")["order"]))
    )


def tap(state: State, target: str) -> State:
    """An app that the registry does not know only shows its name."""
    return state.goto(f"launcher/{target}")


APP: Final = App("launcher", "launcher/home", fresh, elements, tap, background=(214, 226, 238))
