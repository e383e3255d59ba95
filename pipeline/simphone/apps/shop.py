"""Three shops: choose a site, search, choose the right colour among three, put it in the cart."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup
from simphone.element import (
    GREEN,
    INK,
    NAMED,
    ORANGE,
    WIDTH,
    YELLOW,
    Element,
    Elements,
    keyboard,
    search_box,
    title,
)
from simphone.state import AppData, State, chance, words_of
from simphone.words import COLOURS, SITES

SITE_COLOURS: Final = {"amazon": (255, 185, 85), "ebay": (130, 185, 250), "etsy": (195, 225, 120)}
OFFERS = 3


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"site": "", "query": "", "colour": "", "cart": (), "shelf": rng.randrange(2**31)}


def offers(state: State) -> tuple[str, ...]:
    """The colours on offer for the query: the one asked for, if any, and others, in random order."""
    data = state.of("shop")
    asked = [word for word in str(data["query"]).split() if word in COLOURS][:1]
    rng = chance(data["shelf"], data["query"])
    others = rng.sample([colour for colour in COLOURS if colour not in asked], OFFERS - len(asked))
    return tuple(rng.sample([*asked, *others], OFFERS))


def thing(state: State) -> str:
    """The query without its colour."""
    return " ".join(word for word in str(state.of("shop")["query"]).split() if word not in COLOURS)


def elements(state: State) -> Elements:
    data = state.of("shop")
    site = str(data["site"])
    match state.screen:
        case "shop/sites":
            return (
                title("shop", ORANGE),
                *(
                    Element("button", (8, 40 + i * 64, 120, 88 + i * 64), name, name, colour=SITE_COLOURS[name])
                    for i, name in enumerate(SITES)
                ),
            )
        case "shop/results":
            return (
                title(site, ORANGE),
                Element("text", (0, 28, WIDTH, 56), text=str(data["query"]), colour=INK),
                *(
                    Element("product", (0, 64 + i * 56, WIDTH, 120 + i * 56), colour, colour, colour=NAMED[colour])
                    for i, colour in enumerate(offers(state))
                ),
            )
        case "shop/product":
            colour = str(data["colour"])
            return (
                title(site, ORANGE),
                Element("picture", (24, 36, 104, 124), colour=NAMED[colour]),
                Element("text", (0, 136, WIDTH, 160), text=f"{colour} {thing(state)}", colour=INK),
                Element("button", (8, 176, 120, 216), "add to cart", "cart", colour=YELLOW),
            )
        case "shop/done":
            return (title(site, ORANGE), Element("text", (0, 100, WIDTH, 140), text="done", colour=GREEN))
    keys = keyboard("go") if state.focused else ()
    return (title(site, ORANGE), search_box(state.typed, state.focused, 48, "field"), *keys)


def tap(state: State, target: str) -> State:
    match state.screen:
        case "shop/sites":
            return state.remember("shop", site=target).goto("shop/home")
        case "shop/results":
            return state.remember("shop", colour=target).goto("shop/product")
        case "shop/product":
            data = state.of("shop")
            bought = f"{data['site']} {data['colour']} {thing(state)}"
            return state.remember("shop", cart=(*words_of(data["cart"]), bought)).goto("shop/done")
    return state.focus(state.typed) if target == "field" else submit(state)


def submit(state: State) -> State:
    if not state.typed:
        return state
    return state.remember("shop", query=state.typed).goto("shop/results")


APP: Final = App("shop", "shop/sites", fresh, elements, tap, submit)
