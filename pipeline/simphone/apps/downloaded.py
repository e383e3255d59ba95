"""Apps from the store: each shows its name and colour, and does nothing. One App for all of them."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup
from simphone.apps.store import colour_of
from simphone.element import Element, Elements, title
from simphone.state import AppData, State


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {}


def elements(state: State) -> Elements:
    colour = colour_of(state.app)
    return (
        title(state.app, colour),
        Element("picture", (32, 48, 96, 112), colour=colour),
        Element("lines", (8, 136, 120, 220)),
    )


def tap(state: State, target: str) -> State:
    return state


APP: Final = App("downloaded", "{name}/main", fresh, elements, tap)
