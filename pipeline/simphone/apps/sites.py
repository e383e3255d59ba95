"""Five shop sites inside the browser, opened by typing their address: search, results, a product's page, a cart.

The first visit to a site shows a cookie banner, until it is accepted or refused.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Final

from simphone.apps.lists import first_of, row_of, rows, scrolled
from simphone.apps.search import likest
from simphone.element import (
    BLUE,
    GREY,
    INK,
    LIGHT,
    WIDTH,
    YELLOW,
    Colour,
    Element,
    Elements,
    keyboard,
    search_box,
    title,
)
from simphone.lexicon import SHOP_SITES, WARES, named
from simphone.overlays import HARMFUL, Dialog
from simphone.state import AppData, State, chance, words_of

SITE, FOUND, WARE, CART = "browser/site", "browser/found", "browser/ware", "browser/cart"
SCREENS: Final = frozenset({SITE, FOUND, WARE, CART})
LOOKS: Final[dict[str, tuple[Colour, int]]] = dict(
    zip(
        SHOP_SITES,
        (((200, 40, 60), 40), ((60, 60, 60), 48), ((20, 80, 170), 56), ((240, 150, 40), 40), ((20, 120, 200), 64)),
        strict=True,
    )
)
"""The colour of a site, and where its search field begins, px."""
EVERY: Final = named(WARES)
OFFERED: Final = 12
"""Products of a search."""
DEALS: Final = 3
"""Products on a site's first page."""
IN_SIGHT: Final = {FOUND: 5, CART: 5}


def fresh(rng: random.Random) -> AppData:
    return {
        "site": "",
        "asked": "",
        "ware": "",
        "cheapest": False,
        "cookies": (),
        "cart": (),
        "first": 0,
        "shelf": rng.randrange(2**31),
    }


def address(typed: str) -> str:
    """The site whose address was typed; "" if there is none."""
    bare = typed.lower().removeprefix("https://").removeprefix("www.").removesuffix("/")
    return bare if bare in SHOP_SITES else ""


def visit(state: State, site: str) -> State:
    return replace(state.remember("browser", site=site).goto(SITE).load(), typed="")


def price(site: str, ware: str) -> int:
    """The price of a product on a site in dollars, always the same."""
    return chance("price", site, ware).randint(5, 480)


def found(state: State) -> tuple[str, ...]:
    """The products of a search: the best match first, unless they are sorted by price."""
    data = state.of("browser")
    shelf = list(EVERY)
    chance(data["shelf"], data["site"], data["asked"]).shuffle(shelf)
    best = likest(str(data["asked"]), shelf)[:OFFERED]
    return tuple(sorted(best, key=lambda ware: price(str(data["site"]), ware))) if data["cheapest"] else best


def deals(state: State) -> tuple[str, ...]:
    """The products on a site's first page, before any search."""
    data = state.of("browser")
    return tuple(chance(data["shelf"], data["site"], "deals").sample(EVERY, DEALS))


def cart(state: State) -> tuple[str, ...]:
    """The cart of the open site, without the site's name."""
    data = state.of("browser")
    mine = f"{data['site']} "
    return tuple(each.removeprefix(mine) for each in words_of(data["cart"]) if each.startswith(mine))


def asks_for_cookies(state: State) -> bool:
    data = state.of("browser")
    return not any(each.startswith(f"{data['site']} ") for each in words_of(data["cookies"]))


def elements(state: State) -> Elements:
    shown = _page(state)
    if not asks_for_cookies(state):
        return shown
    return (
        *(replace(element, target="") for element in shown),
        Element("panel", (0, 152, WIDTH, 256), text="we use cookies", colour=LIGHT),
        Element("button", (4, 216, 64, 248), "refuse", "refuse", colour=GREY),
        Element("button", (64, 216, 124, 248), "accept", "accept", colour=BLUE),
    )


def _page(state: State) -> Elements:
    data = state.of("browser")
    site, ware, first = str(data["site"]), str(data["ware"]), first_of(state, "browser")
    colour, top = LOOKS[site]
    head = title(site, colour)
    to_cart = Element("button", (64, 220, 124, 252), "cart", "cart", colour=GREY)
    match state.screen:
        case "browser/found":
            names, cheapest = found(state), bool(data["cheapest"])
            return (
                head,
                Element("tab", (0, 24, 64, 52), "best", "best", on=not cheapest, colour=LIGHT),
                Element("tab", (64, 24, WIDTH, 52), "price", "price", on=cheapest, colour=LIGHT),
                *rows(names, first, 56, IN_SIGHT[FOUND], _prices(site, names)),
                to_cart,
            )
        case "browser/ware":
            rng = chance("picture", ware)
            likeness = (rng.randrange(40, 240), rng.randrange(40, 240), rng.randrange(40, 240))
            return (
                head,
                Element("picture", (24, 32, 104, 104), colour=likeness),
                Element("text", (0, 108, WIDTH, 132), text=ware, colour=INK),
                Element("text", (0, 132, WIDTH, 156), text=f"${price(site, ware)}", colour=colour),
                Element("button", (8, 168, 120, 208), "add to cart", "add", colour=YELLOW),
                to_cart,
            )
        case "browser/cart":
            names = cart(state)
            total = f"${sum(price(site, name) for name in names)}"
            return (
                head,
                Element("text", (0, 28, WIDTH, 52), text=f"cart {total}", colour=INK),
                *rows(names, first, 56, IN_SIGHT[CART], _prices(site, names)),
            )
    box = search_box(state.typed, state.focused, top, "field")
    if state.focused:
        return (head, box, *keyboard("go"))
    names = deals(state)
    return (head, box, *rows(names, 0, 112, DEALS, _prices(site, names)), to_cart)


def _prices(site: str, wares: tuple[str, ...]) -> dict[str, str]:
    return {ware: f"${price(site, ware)}" for ware in wares}


def tap(state: State, target: str) -> State:
    data = state.of("browser")
    site, ware = str(data["site"]), row_of(target)
    match target:
        case "accept" | "refuse":
            said = "accepted" if target == "accept" else "refused"
            return state.remember("browser", cookies=(*words_of(data["cookies"]), f"{site} {said}"))
        case "field":
            return state.focus(state.typed)
        case "go":
            return submit(state)
        case "best" | "price":
            return state.remember("browser", cheapest=target == "price", first=0)
        case "add":
            return state.remember("browser", cart=(*words_of(data["cart"]), f"{site} {data['ware']}")).say("added")
        case "cart":
            return state.remember("browser", first=0).goto(CART)
    if state.screen == CART:
        return state.remember("browser", ware=ware).ask("browser/remove")
    return state.remember("browser", ware=ware).goto(WARE).load()


def submit(state: State) -> State:
    if not state.typed:
        return state
    return state.remember("browser", asked=state.typed, cheapest=False, first=0).goto(FOUND).load()


def swipe(state: State, direction: str) -> State:
    if state.screen not in IN_SIGHT or asks_for_cookies(state):
        return state
    listed = found(state) if state.screen == FOUND else cart(state)
    return scrolled(state, "browser", len(listed), IN_SIGHT[state.screen], direction)


def _removed(state: State) -> State:
    data = state.of("browser")
    left = list(words_of(data["cart"]))
    left.remove(f"{data['site']} {data['ware']}")
    return state.remember("browser", cart=tuple(left)).say("removed")


REMOVE: Final = Dialog("remove this?", "remove", _removed, colour=HARMFUL)
