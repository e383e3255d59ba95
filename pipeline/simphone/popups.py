"""Pop-ups, which may appear after any action, and how each is closed. BACK and HOME also close every one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from simphone.element import BLUE, RED, WIDTH, YELLOW, Element, Elements
from simphone.state import ADVERT, State, chance

LATER_GREY = (205, 205, 210)
PANEL: Final = (8, 72, 120, 184)

POPUPS: Final[dict[str, Elements]] = {
    "update": (
        Element("panel", PANEL, text="update ready"),
        Element("button", (16, 144, 64, 176), "later", "close", colour=LATER_GREY),
        Element("button", (64, 144, 112, 176), "ok", "advert", colour=BLUE),
    ),
    "rate": (
        Element("panel", PANEL, text="rate this app"),
        Element("cross", (88, 72, 120, 104), "close", "close", colour=RED),
        Element("button", (24, 144, 104, 176), "rate", "advert", colour=YELLOW),
    ),
    "sale": (
        Element("panel", PANEL, text="sale"),
        Element("button", (16, 144, 64, 176), "open", "advert", colour=RED),
        Element("button", (64, 144, 112, 176), "close", "close", colour=LATER_GREY),
    ),
}

ADVERT_ELEMENTS: Final[Elements] = (
    Element("picture", (0, 0, WIDTH, 256), colour=(255, 240, 60)),
    Element("text", (0, 96, WIDTH, 136), text="sale", colour=RED),
)


def tap(state: State, target: str) -> State:
    """What a button of the pop-up in front does."""
    closed = replace(state, dialog="")
    return closed if target == "close" else closed.goto(ADVERT)


def maybe(state: State) -> State:
    """The state with or without a new pop-up; the randomness depends only on the phone's seed and clock."""
    if state.dialog or state.screen == ADVERT or not state.popup_probability:
        return state
    rng = chance(state.seed, "popup", state.clock)
    if rng.random() >= state.popup_probability:
        return state
    return replace(state, dialog=rng.choice(sorted(POPUPS)))
