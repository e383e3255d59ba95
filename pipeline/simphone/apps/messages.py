"""Messages: four contacts, a conversation, a field and `send`."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup, wanted
from simphone.element import BLUE, GREEN, LIGHT, WIDTH, Element, Elements, keyboard, search_box, title
from simphone.state import AppData, State, words_of
from simphone.words import FIRST_NAMES, LAST_NAMES, pairs

CONTACTS = 4
VISIBLE = 2
"""Bubbles of a conversation that are drawn; older ones are not visible."""


def fresh(rng: random.Random, setup: Setup) -> AppData:
    """setup: {"contact": a name that must be among the contacts}."""
    every = [" ".join(pair) for pair in pairs(FIRST_NAMES, LAST_NAMES)]
    shown = rng.sample(every, CONTACTS)
    asked = wanted(setup, "contact", every)
    if asked and asked not in shown:
        shown[rng.randrange(CONTACTS)] = asked
    return {"contacts": tuple(shown), "with": "", "sent": ()}


def elements(state: State) -> Elements:
    data = state.of("messages")
    if state.screen == "messages/list":
        return (
            title("messages", GREEN),
            *(
                Element("row", (0, 32 + i * 48, WIDTH, 80 + i * 48), name, name, colour=LIGHT)
                for i, name in enumerate(words_of(data["contacts"]))
            ),
        )
    other = str(data["with"])
    said = [line.partition(": ")[2] for line in words_of(data["sent"]) if line.startswith(f"{other}: ")][-VISIBLE:]
    bubbles = (
        Element("bubble", (24, 76 + i * 36, 120, 104 + i * 36), text=text, colour=BLUE) for i, text in enumerate(said)
    )
    keys = keyboard("send", "send") if state.focused else ()
    return (title(other, GREEN), search_box(state.typed, state.focused, 32, "field", "message"), *bubbles, *keys)


def tap(state: State, target: str) -> State:
    if state.screen == "messages/list":
        return state.remember("messages", **{"with": target}).goto("messages/chat")
    return state.focus(state.typed) if target == "field" else submit(state)


def submit(state: State) -> State:
    if not state.typed:
        return state
    data = state.of("messages")
    sent = (*words_of(data["sent"]), f"{data['with']}: {state.typed}")
    return state.remember("messages", sent=sent).focus().leave()


APP: Final = App("messages", "messages/list", fresh, elements, tap, submit, takes=("contact",))
