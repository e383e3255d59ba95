"""A browser: a search box, four results, a page; behind the addresses of sites.py, a shop."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps import sites
from simphone.apps.app import App, Setup
from simphone.element import BLUE, INK, LIGHT, WIDTH, Element, Elements, keyboard, search_box, title
from simphone.state import AppData, State
from simphone.words import RANKS


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"query": "", "result": "", **sites.fresh(rng)}


def elements(state: State) -> Elements:
    if state.screen in sites.SCREENS:
        return sites.elements(state)
    query = str(state.of("browser")["query"])
    match state.screen:
        case "browser/results":
            rows = (
                Element(
                    "row",
                    (0, 64 + i * 48, WIDTH, 112 + i * 48),
                    f"result {rank}",
                    rank,
                    text=f"{rank}  {query}",
                    colour=LIGHT,
                )
                for i, rank in enumerate(RANKS)
            )
            return (title("browser", BLUE), search_box(query, False, 28, "field"), *rows)
        case "browser/page":
            rank = str(state.of("browser")["result"])
            body = Element("lines", (8, 90, 120, 230))
            return (
                title(f"page {rank}", BLUE),
                Element("text", (0, 40, WIDTH, 72), text=query, colour=INK),
                body,
            )
    keys = keyboard("go") if state.focused else ()
    return (title("browser", BLUE), search_box(state.typed, state.focused, 48, "field"), *keys)


def tap(state: State, target: str) -> State:
    if state.screen in sites.SCREENS:
        return sites.tap(state, target)
    if target == "field":
        if state.screen == "browser/home":
            return state.focus(state.typed)
        return state.leave().focus()
    if target == "go":
        return submit(state)
    return state.remember("browser", result=target).goto("browser/page")


def submit(state: State) -> State:
    if state.screen in sites.SCREENS:
        return sites.submit(state)
    if not state.typed:
        return state
    if site := sites.address(state.typed):
        return sites.visit(state, site)
    return state.remember("browser", query=state.typed).goto("browser/results")


def swipe(state: State, direction: str) -> State:
    return sites.swipe(state, direction) if state.screen in sites.SCREENS else state


APP: Final = App("browser", "browser/home", fresh, elements, tap, submit, swipe, questions={"remove": sites.REMOVE})
