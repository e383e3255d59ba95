"""The web shopping suite, after the paper's (appendix A.5.2): five shop sites in the browser, 20 steps a task.

Its difficulties are the paper's: 1 is to go to a site, 2 to search there as well, 3 to choose a result, which here is
either opened or put into the cart. Products are split; sites are in all splits, as in Android in the Wild, so a
held-out task of difficulty 1 differs only in its words and its phone.
"""

from __future__ import annotations

from typing import Final

from simphone.apps import sites
from simphone.lexicon import SHOP_SITES
from simphone.state import State, words_of

from distrl.tasks import moves
from distrl.tasks.conditions import Unmets, equals, has_words
from distrl.tasks.family import Of, family
from distrl.tasks.listed import ListedSuite
from distrl.tasks.persistent_state import Kept
from distrl.tasks.suites.world import WARES
from distrl.types import Split

TYPED: Final = {"address": "{site}", "text": "{ware}"}


def at_site(now: State, of: Of) -> Unmets:
    return (*equals(now, "screen", sites.SITE), *equals(now, "browser.site", of["site"]))


def found(now: State, of: Of) -> Unmets:
    """The results of a search for the product on its site, whichever way they are sorted."""
    return (*equals(now, "screen", sites.FOUND), *searched(now, of))


def selected(now: State, of: Of) -> Unmets:
    return (*equals(now, "screen", sites.WARE), *searched(now, of), *equals(now, "browser.ware", of["ware"]))


def searched(now: State, of: Of) -> Unmets:
    return (*equals(now, "browser.site", of["site"]), *has_words(now, "browser.asked", of["ware"]))


def in_cart(start: State, of: Of) -> Kept:
    return {("browser", "cart"): (*words_of(start.of("browser")["cart"]), f"{of['site']} {of['ware']}")}


VISIT = family(
    "visit", "browser",
    ("Go to {site}", "Open {site}", "Visit {site}", "Go to {site} in the browser", "Open the browser and go to {site}",
     "Show me {site}", "Navigate to {site}"),
    {"level": ("1",), "site": SHOP_SITES}, lambda now, of: moves.visit(now, of["address"]),
    types={"address": "{site}"}, shows=at_site,
)  # fmt: skip
SEARCH = family(
    "search", "browser",
    ('Go to {site}, search for "{ware}"', 'Search for "{ware}" on {site}', 'Look for "{ware}" at {site}'),
    {"level": ("2",), "site": SHOP_SITES, "ware": WARES},
    lambda now, of: moves.search_site(now, of["address"], of["text"]), types=TYPED, shows=found,
)  # fmt: skip
SELECT = family(
    "select", "browser",
    ('Go to {site}, search for "{ware}", and select the first entry',
     'Search for "{ware}" on {site} and open the first result'),
    {"level": ("3",), "site": SHOP_SITES, "ware": WARES},
    lambda now, of: moves.open_ware(now, of["address"], of["text"]), types=TYPED, shows=selected,
)  # fmt: skip
CART = family(
    "cart", "browser",
    ('Go to {site}, search for "{ware}", and add the first entry to the cart',
     'Add "{ware}" to the cart on {site}'),
    {"level": ("3",), "site": SHOP_SITES, "ware": WARES},
    lambda now, of: moves.add_to_cart(now, of["address"], of["text"]), types=TYPED, changes=in_cart,
)  # fmt: skip

KINDS: Final = (VISIT, SEARCH, SELECT, CART)

WEBSHOP: Final = ListedSuite(
    "webshop", 20, KINDS,
    {split: {"visit": visits, "search": others, "select": others, "cart": others} for split, visits, others in
     ((Split.TRAIN, 20, 160), (Split.VALIDATION, 4, 20), (Split.TEST, 8, 40))},
)  # fmt: skip
