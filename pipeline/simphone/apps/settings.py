"""Settings: eight switches of twenty-four, four a page; a swipe turns the page."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup, wanted
from simphone.element import GREY, HEIGHT, LIGHT, WIDTH, Element, Elements, title
from simphone.state import AppData, State, words_of
from simphone.words import SWITCH_KINDS, SWITCHES, pairs

ROWS = 4


def fresh(rng: random.Random, setup: Setup) -> AppData:
    """setup: {"show": a switch that must be among those shown, "on": whether it is on, default false}."""
    every = [" ".join(pair) for pair in pairs(SWITCHES, SWITCH_KINDS)]
    shown = rng.sample(every, 2 * ROWS)
    asked, switched_on = wanted(setup, "show", every), setup.get("on", False)
    if not isinstance(switched_on, bool):
        raise ValueError(f"on {switched_on!r} is neither true nor false")
    if "on" in setup and not asked:
        raise ValueError("on is set up together with the switch to show")
    if asked and asked not in shown:
        shown[rng.randrange(len(shown))] = asked
    on = {name for name in shown if rng.random() < 0.5}
    if asked:
        on = on | {asked} if switched_on else on - {asked}
    return {"shown": tuple(shown), "on": tuple(sorted(on)), "page": 0}


def elements(state: State) -> Elements:
    data = state.of("settings")
    page = int(str(data["page"]))
    rows = words_of(data["shown"])[page * ROWS : page * ROWS + ROWS]
    return (
        title("settings", GREY),
        *(
            Element(
                "toggle",
                (0, 32 + i * 48, WIDTH, 80 + i * 48),
                name,
                name,
                on=name in words_of(data["on"]),
                colour=LIGHT,
            )
            for i, name in enumerate(rows)
        ),
        Element("scroll", (WIDTH - 4, 32 + page * 110, WIDTH, HEIGHT - 110 + page * 100)),
    )


def tap(state: State, target: str) -> State:
    on = set(words_of(state.of("settings")["on"]))
    return state.remember("settings", on=tuple(sorted(on ^ {target})))


def swipe(state: State, direction: str) -> State:
    page = {"up": 1, "down": 0}.get(direction)
    return state if page is None else state.remember("settings", page=page)


APP: Final = App("settings", "settings/list", fresh, elements, tap, swipe=swipe, takes=("show", "on"))
