"""Notes: a list, `new`, a field and `save`."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup
from simphone.element import BLUE, LIGHT, WIDTH, YELLOW, Element, Elements, keyboard, search_box, title
from simphone.state import AppData, State, words_of

VISIBLE = 3


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"notes": ()}


def elements(state: State) -> Elements:
    if state.screen == "notes/new":
        keys = keyboard("save", "save") if state.focused else ()
        return (title("new note", YELLOW), search_box(state.typed, state.focused, 48, "field", "type"), *keys)
    kept = words_of(state.of("notes")["notes"])[-VISIBLE:]
    rows = (
        Element("row", (0, 32 + i * 40, WIDTH, 72 + i * 40), text=text, colour=LIGHT) for i, text in enumerate(kept)
    )
    return (title("notes", YELLOW), *rows, Element("button", (64, 192, 120, 240), "new", "new", colour=BLUE))


def tap(state: State, target: str) -> State:
    if target == "new":
        return state.goto("notes/new")
    return state.focus(state.typed) if target == "field" else submit(state)


def submit(state: State) -> State:
    if not state.typed:
        return state
    notes = (*words_of(state.of("notes")["notes"]), state.typed)
    return state.remember("notes", notes=notes).focus().leave().leave()


APP: Final = App("notes", "notes/list", fresh, elements, tap, submit)
