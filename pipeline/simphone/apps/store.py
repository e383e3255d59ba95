"""An app store: search, an app's page, install, update, uninstall, open. An installation takes a few events."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup, wanted
from simphone.apps.lists import first_of, row_of, rows, scrolled
from simphone.apps.search import matches
from simphone.element import (
    BLUE,
    GREEN,
    GREY,
    INK,
    RED,
    VIOLET,
    WIDTH,
    Colour,
    Element,
    Elements,
    keyboard,
    search_box,
    title,
)
from simphone.lexicon import STORE_APPS, named
from simphone.overlays import HARMFUL, Dialog
from simphone.state import AppData, State, chance, words_of

EVERY: Final = named(STORE_APPS)
OWNED = 3
"""Apps of the store that a phone has after a reset."""
SHORTEST, LONGEST = 2, 4
"""Events that an installation or an update takes."""
IN_SIGHT: Final = {"store/home": 5, "store/results": 6}
COLOUR: Final[Colour] = (20, 140, 130)
ICONS: Final[tuple[Colour, ...]] = (BLUE, GREEN, RED, VIOLET, GREY, COLOUR)


def fresh(rng: random.Random, setup: Setup) -> AppData:
    """setup: apps by name: "installed" is one that the phone has, "old" one that can be updated, "missing" one that it
    does not have.
    """
    have, old, missing = (wanted(setup, key, EVERY) for key in ("installed", "old", "missing"))
    if missing and missing in (have, old):
        raise ValueError(f"{missing!r} cannot be missing and installed")
    owned = [app for app in rng.sample(EVERY, OWNED) if app != missing]
    owned += [app for app in dict.fromkeys((have, old)) if app and app not in owned]
    return {
        "installed": tuple(sorted(owned)),
        "old": (old,) if old else tuple(app for app in sorted(owned)[:1] if app != have),
        "query": "",
        "shown": "",
        "pending": "",
        "left": 0,
        "first": 0,
    }


def installed(state: State) -> tuple[str, ...]:
    """The apps of the store that the phone has, by name."""
    return words_of(state.of("store")["installed"])


def colour_of(app: str) -> Colour:
    return ICONS[EVERY.index(app) % len(ICONS)]


def found(query: str) -> tuple[str, ...]:
    """What a search lists."""
    return matches(query, EVERY)


def elements(state: State) -> Elements:
    data = state.of("store")
    have, old, first = installed(state), words_of(data["old"]), first_of(state, "store")
    match state.screen:
        case "store/app":
            return (title("store", COLOUR), *_page(state, str(data["shown"])))
        case "store/results":
            names = found(str(data["query"]))
            captions = {app: "update" if app in old else "installed" for app in have}
            none = () if names else (Element("text", (0, 60, WIDTH, 92), text="no app", colour=GREY),)
            return (
                title("store", COLOUR),
                Element("text", (0, 28, WIDTH, 56), text=str(data["query"]), colour=INK),
                *rows(names, first, 60, IN_SIGHT[state.screen], captions),
                *none,
            )
    box = search_box(state.typed, state.focused, 32, "field")
    if state.focused:
        return (title("store", COLOUR), box, *keyboard("go"))
    mine = rows(have, first, 88, IN_SIGHT["store/home"], dict.fromkeys(old, "update"))
    return (title("store", COLOUR), box, Element("text", (0, 68, WIDTH, 88), text="on this phone", colour=GREY), *mine)


def _page(state: State, app: str) -> Elements:
    data = state.of("store")
    head = (
        Element("picture", (16, 40, 56, 80), colour=colour_of(app)),
        Element("text", (0, 88, WIDTH, 112), text=app, colour=INK),
    )
    if data["pending"] == app:
        done = LONGEST - int(str(data["left"]))
        track = Element("progress", (16, 130, 112, 142))
        fill = Element("progress", (16, 130, 16 + 96 * done // LONGEST, 142), on=True)
        return (*head, track, fill, Element("button", (16, 208, 112, 240), "cancel", "cancel", colour=GREY))
    if app not in installed(state):
        return (*head, Element("button", (16, 128, 112, 160), "install", "install", colour=GREEN))
    update = Element("button", (16, 168, 112, 200), "update", "update", colour=GREEN)
    return (
        *head,
        Element("button", (16, 128, 112, 160), "open", "open", colour=BLUE),
        *((update,) if app in words_of(data["old"]) else ()),
        Element("button", (16, 208, 112, 240), "uninstall", "uninstall", colour=GREY),
    )


def tap(state: State, target: str) -> State:
    app = str(state.of("store")["shown"])
    match target:
        case "field":
            return state.focus(state.typed)
        case "go":
            return submit(state)
        case "install" | "update":
            if state.of("store")["pending"]:
                return state.say("one at a time")
            left = chance(state.seed, "install", state.clock).randint(SHORTEST, LONGEST)
            return state.remember("store", pending=app, left=left)
        case "cancel":
            return state.remember("store", pending="", left=0)
        case "open":
            return state.goto(f"{app}/main")
        case "uninstall":
            return state.ask("store/uninstall")
    return state.remember("store", shown=row_of(target)).goto("store/app").load()


def submit(state: State) -> State:
    if not state.typed:
        return state
    return state.remember("store", query=state.typed, first=0).goto("store/results").load()


def swipe(state: State, direction: str) -> State:
    if state.screen not in IN_SIGHT or state.focused:
        return state
    listed = found(str(state.of("store")["query"])) if state.screen == "store/results" else installed(state)
    return scrolled(state, "store", len(listed), IN_SIGHT[state.screen], direction)


def tick(state: State) -> State:
    """An installation proceeds, also in the background."""
    data = state.of("store")
    app, left = str(data["pending"]), int(str(data["left"]))
    if not app:
        return state
    if left > 0:
        return state.remember("store", left=left - 1)
    old = tuple(name for name in words_of(data["old"]) if name != app)
    have = tuple(sorted({*installed(state), app}))
    return state.remember("store", installed=have, old=old, pending="").say("installed")


def _uninstalled(state: State) -> State:
    data = state.of("store")
    have, old = (tuple(app for app in words_of(data[name]) if app != data["shown"]) for name in ("installed", "old"))
    return state.remember("store", installed=have, old=old).say("removed")


APP: Final = App(
    "store", "store/home", fresh, elements, tap, submit, swipe, takes=("installed", "old", "missing"), tick=tick,
    questions={"uninstall": Dialog("uninstall this app?", "uninstall", _uninstalled, colour=HARMFUL)},
)  # fmt: skip
