"""A telephone: dial pad, recent calls, the call in progress. The first call asks for permission."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup
from simphone.apps.lists import first_of, row_of, rows, scrolled
from simphone.element import GREEN, GREY, INK, RED, WIDTH, Colour, Element, Elements
from simphone.overlays import Dialog
from simphone.state import AppData, State, words_of

KEYS: Final = "123456789*0#"
MOST_DIGITS = 12
KEPT, IN_SIGHT = 20, 6
"""Recent calls that are stored, and those visible at once."""
PALE: Final[Colour] = (222, 226, 232)


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"digits": "", "asked": "", "allowed": False, "calling": "", "recent": (), "first": 0}


def dial(state: State, whom: str) -> State:
    """Call a person or a number, and add it to the recent calls, newest first; the first call asks for permission."""
    data = state.of("phone")
    if not data["allowed"]:
        return state.remember("phone", asked=whom).ask("phone/permission")
    recent = (whom, *words_of(data["recent"]))[:KEPT]
    return state.remember("phone", calling=whom, recent=recent, digits="", first=0).goto("phone/call")


def _allowed(state: State) -> State:
    return dial(state.remember("phone", allowed=True, asked=""), str(state.of("phone")["asked"]))


def _denied(state: State) -> State:
    return state.remember("phone", asked="").say("no calls allowed")


def elements(state: State) -> Elements:
    data = state.of("phone")
    if state.screen == "phone/call":
        whom = str(data["calling"])
        return (
            Element("text", (0, 24, WIDTH, 48), text="calling" if whom else "ended", colour=GREY),
            Element("avatar", (32, 56, 96, 120), text=whom or "-", colour=GREEN if whom else GREY),
            Element("text", (0, 128, WIDTH, 152), text=whom, colour=INK),
            *((Element("round", (40, 184, 88, 232), "end", "end", colour=RED),) if whom else ()),
        )
    pad = state.screen == "phone/pad"
    tabs = (
        Element("tab", (0, 0, 64, 32), "pad", "pad", on=pad, colour=PALE),
        Element("tab", (64, 0, WIDTH, 32), "recent", "recent", on=not pad, colour=PALE),
    )
    if not pad:
        return (*tabs, *rows(words_of(data["recent"]), first_of(state, "phone"), 40, IN_SIGHT))
    return (
        *tabs,
        Element("text", (0, 36, WIDTH, 60), text=str(data["digits"]), colour=INK),
        *(
            Element(
                "round",
                (i % 3 * 42 + 2, 64 + i // 3 * 36, i % 3 * 42 + 42, 98 + i // 3 * 36),
                key,
                f"key {key}",
                colour=PALE,
            )
            for i, key in enumerate(KEYS)
        ),
        Element("button", (4, 212, 64, 252), "call", "call", colour=GREEN),
        Element("button", (68, 212, 124, 252), "erase", "erase", colour=GREY),
    )


def tap(state: State, target: str) -> State:
    digits = str(state.of("phone")["digits"])
    match target.split(" "):
        case ["key", key]:
            return state.remember("phone", digits=(digits + key)[:MOST_DIGITS])
        case ["erase"]:
            return state.remember("phone", digits=digits[:-1])
        case ["call"]:
            return dial(state, digits) if digits else state.say("no number")
        case ["end"]:
            return state.remember("phone", calling="").leave().say("call ended")
        case ["recent"]:
            return state if state.screen == "phone/recent" else state.goto("phone/recent")
        case ["pad"]:
            return state.leave() if state.screen == "phone/recent" else state
    return dial(state, row_of(target))


def swipe(state: State, direction: str) -> State:
    if state.screen != "phone/recent":
        return state
    return scrolled(state, "phone", len(words_of(state.of("phone")["recent"])), IN_SIGHT, direction)


def opened(state: State) -> State:
    """A call continues until it is ended; opening the app returns to it."""
    return state.goto("phone/call") if state.of("phone")["calling"] else state


APP: Final = App(
    "phone", "phone/pad", fresh, elements, tap, swipe=swipe, opened=opened,
    questions={"permission": Dialog("allow calls?", "allow", _allowed, no="deny", otherwise=_denied)},
)  # fmt: skip
