"""Contacts: a list, a person's page with the number, a new one by name."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps import phone
from simphone.apps.app import App, Setup, wanted
from simphone.apps.lists import first_of, row_of, rows, scrolled
from simphone.element import (
    BLUE,
    GREEN,
    GREY,
    HEIGHT,
    INK,
    ORANGE,
    WIDTH,
    Element,
    Elements,
    keyboard,
    search_box,
    title,
)
from simphone.lexicon import PEOPLE, named
from simphone.overlays import HARMFUL, Dialog
from simphone.state import AppData, State, chance, words_of

EVERY: Final = named(PEOPLE)
KNOWN = 12
"""People in a new phone's contacts."""
IN_SIGHT = 5


def fresh(rng: random.Random, setup: Setup) -> AppData:
    """setup: {"contact": a name that must be among them, "missing": one that must not}."""
    asked, missing = wanted(setup, "contact", EVERY), wanted(setup, "missing", EVERY)
    if asked and asked == missing:
        raise ValueError(f"{asked!r} cannot be among the contacts and missing")
    people = rng.sample([name for name in EVERY if name != missing], KNOWN)
    if asked and asked not in people:
        people[rng.randrange(KNOWN)] = asked
    return {"people": tuple(sorted(people)), "person": "", "first": 0}


def number_of(name: str) -> str:
    """The number of a person, which depends on the name only."""
    return f"555{chance('number', name).randrange(10_000):04}"


def elements(state: State) -> Elements:
    match state.screen:
        case "contacts/person":
            return _person(str(state.of("contacts")["person"]))
        case "contacts/new":
            keys = keyboard("save", "save") if state.focused else ()
            return (title("new contact", ORANGE), search_box(state.typed, state.focused, 48, "field", "name"), *keys)
    people = words_of(state.of("contacts")["people"])
    return (
        title("contacts", ORANGE),
        *rows(people, first_of(state, "contacts"), 32, IN_SIGHT),
        Element("button", (64, 208, 120, HEIGHT), "new", "new", colour=BLUE),
    )


def _person(name: str) -> Elements:
    return (
        title(name, ORANGE),
        Element("avatar", (40, 36, 88, 84), text=name, colour=ORANGE),
        Element("text", (0, 92, WIDTH, 116), text=number_of(name), colour=INK),
        Element("button", (8, 128, 120, 160), "call", "call", colour=GREEN),
        Element("button", (8, 208, 120, 240), "delete", "delete", colour=GREY),
    )


def tap(state: State, target: str) -> State:
    match target:
        case "field":
            return state.focus(state.typed)
        case "save":
            return submit(state)
        case "new":
            return state.goto("contacts/new")
        case "call":
            return phone.dial(state, str(state.of("contacts")["person"]))
        case "delete":
            return state.ask("contacts/delete")
    return state.remember("contacts", person=row_of(target)).goto("contacts/person")


def submit(state: State) -> State:
    if not state.typed:
        return state
    people = {*words_of(state.of("contacts")["people"]), state.typed}
    ordered = tuple(sorted(people, key=lambda name: (name.lower(), name)))  # a keyboard may capitalise it
    return state.remember("contacts", people=ordered).focus().leave().leave().say("saved")


def swipe(state: State, direction: str) -> State:
    if state.screen != "contacts/list":
        return state
    return scrolled(state, "contacts", len(words_of(state.of("contacts")["people"])), IN_SIGHT, direction)


def _deleted(state: State) -> State:
    data = state.of("contacts")
    people = tuple(name for name in words_of(data["people"]) if name != data["person"])
    return state.remember("contacts", people=people).leave().say("deleted")


APP: Final = App(
    "contacts", "contacts/list", fresh, elements, tap, submit, swipe, takes=("contact", "missing"),
    questions={"delete": Dialog("delete contact?", "delete", _deleted, colour=HARMFUL)},
)  # fmt: skip
