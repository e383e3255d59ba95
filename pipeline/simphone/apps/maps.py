"""Maps: search a place, its page, directions on foot or by car. The first use asks for the location permission."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup
from simphone.apps.lists import first_of, row_of, rows, scrolled
from simphone.apps.search import matches
from simphone.element import (
    BLUE,
    GREEN,
    HEIGHT,
    INK,
    VIOLET,
    WIDTH,
    YELLOW,
    Element,
    Elements,
    keyboard,
    search_box,
    title,
)
from simphone.lexicon import PLACES, named
from simphone.overlays import Dialog
from simphone.state import AppData, State, chance, words_of

EVERY: Final = named(PLACES)
IN_SIGHT = 6
MODES: Final = ("walk", "drive")


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"location": "", "query": "", "place": "", "mode": "", "going": "", "starred": (), "first": 0}


def minutes(place: str, mode: str) -> int:
    """The travel time."""
    drive = chance("way", place).randint(4, 40)
    return drive if mode == "drive" else 5 * drive


def found(query: str) -> tuple[str, ...]:
    """The places that a search lists."""
    return matches(query, EVERY)


def elements(state: State) -> Elements:
    data = state.of("maps")
    place = str(data["place"])
    match state.screen:
        case "maps/results":
            names = found(str(data["query"]))
            none = () if names else (Element("text", (0, 60, WIDTH, 92), text="no place", colour=VIOLET),)
            return (title(str(data["query"]), VIOLET), *rows(names, first_of(state, "maps"), 32, IN_SIGHT), *none)
        case "maps/place":
            return (
                title(place, VIOLET),
                Element("map", (0, 24, WIDTH, 144), place),
                Element(
                    "star", (88, 152, 120, 184), "star", "star", on=place in words_of(data["starred"]), colour=YELLOW
                ),
                Element("button", (8, 208, 120, 240), "directions", "directions", colour=BLUE),
            )
        case "maps/way":
            mode, going = str(data["mode"]), data["going"] == f"{data['mode']} {place}"
            tabs = (
                Element("tab", (i * 64, 0, i * 64 + 64, 32), name, name, on=name == mode, colour=(235, 228, 245))
                for i, name in enumerate(MODES)
            )
            word = "stop" if going else "start"
            return (
                *tabs,
                Element("map", (0, 32, WIDTH, 152), place, on=True),
                Element("text", (0, 156, WIDTH, 176), text=place, colour=INK),
                Element("text", (0, 176, WIDTH, 196), text=f"{minutes(place, mode)} min", colour=GREEN),
                Element("button", (8, 208, 120, 240), word, word, colour=VIOLET if going else GREEN),
            )
    box = search_box(state.typed, state.focused, 16, "field")
    return (Element("map", (0, 0, WIDTH, HEIGHT)), box, *(keyboard("go") if state.focused else ()))


def tap(state: State, target: str) -> State:
    data = state.of("maps")
    place = str(data["place"])
    match target:
        case "field":
            return state.focus(state.typed)
        case "go":
            return submit(state)
        case "star":
            return state.remember("maps", starred=tuple(sorted({*words_of(data["starred"])} ^ {place})))
        case "directions":
            if data["location"] != "allowed":
                return state.ask("maps/permission")
            return state.remember("maps", mode="drive").goto("maps/way").load()
        case "walk" | "drive":
            return state.remember("maps", mode=target)
        case "start":
            return state.remember("maps", going=f"{data['mode']} {place}")
        case "stop":
            return state.remember("maps", going="")
    return state.remember("maps", place=row_of(target)).goto("maps/place").load()


def submit(state: State) -> State:
    if not state.typed:
        return state
    return state.remember("maps", query=state.typed, first=0).goto("maps/results").load()


def swipe(state: State, direction: str) -> State:
    if state.screen != "maps/results":
        return state
    return scrolled(state, "maps", len(found(str(state.of("maps")["query"]))), IN_SIGHT, direction)


def opened(state: State) -> State:
    return state if state.of("maps")["location"] else state.ask("maps/permission")


def _may_see(state: State) -> State:
    return state.remember("maps", location="allowed")


def _may_not(state: State) -> State:
    return state.remember("maps", location="denied").say("no location")


APP: Final = App(
    "maps", "maps/search", fresh, elements, tap, submit, swipe, opened=opened,
    questions={"permission": Dialog("allow location?", "allow", _may_see, no="deny", otherwise=_may_not)},
)  # fmt: skip
