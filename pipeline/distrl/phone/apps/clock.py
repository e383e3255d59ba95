"""A clock with a page of alarms, each of which a tap sets or clears."""

from __future__ import annotations

import random
from typing import Final

from distrl.phone.apps.app import App, Setup
from distrl.phone.element import NAVY, WHITE, WIDTH, Element, Elements
from distrl.phone.state import AppData, State, words_of
from distrl.phone.words import HALVES, HOURS

DARK = (60, 60, 92)


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"alarms": ()}


def elements(state: State) -> Elements:
    alarms = state.screen == "clock/alarms"
    tabs = (
        Element("tab", (0, 0, 64, 32), "clock", "clock", on=not alarms, colour=NAVY),
        Element("tab", (64, 0, WIDTH, 32), "alarm", "alarm", on=alarms, colour=NAVY),
    )
    if not alarms:
        return (*tabs, Element("dial", (24, 80, 104, 160), colour=WHITE))
    set_ones = words_of(state.of("clock")["alarms"])
    return (
        *tabs,
        *(
            Element("tile", (c * 64, 48 + r * 32, c * 64 + 64, 80 + r * 32), f"{hour} {half}", f"{hour} {half}",
                    on=f"{hour} {half}" in set_ones, colour=DARK)
            for r, hour in enumerate(HOURS)
            for c, half in enumerate(HALVES)
        ),
    )  # fmt: skip


def tap(state: State, target: str) -> State:
    if target == "alarm":
        return state if state.screen == "clock/alarms" else state.goto("clock/alarms")
    if target == "clock":
        return state.leave() if state.screen == "clock/alarms" else state
    alarms = set(words_of(state.of("clock")["alarms"]))
    return state.remember("clock", alarms=tuple(sorted(alarms ^ {target})))


APP: Final = App("clock", "clock/face", fresh, elements, tap, background=NAVY)
