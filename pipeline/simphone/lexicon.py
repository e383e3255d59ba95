"""Words of the apps beside those of words.py: entities for the suites, and the words on controls.

An entity is a pair of words ("team lunch"), so that a split can hold out pairs whose words are known, or one of a list.
"""

from __future__ import annotations

from typing import Final

from simphone import words
from simphone.words import Words, pairs

FIRST_NAMES: Final[Words] = (*words.FIRST_NAMES, "gina", "hugo", "iris", "jack", "kim", "leo")
LAST_NAMES: Final[Words] = (*words.LAST_NAMES, "park", "reed", "cruz", "west")
OCCASIONS: Final[Words] = ("team", "family", "school", "work", "garden", "club", "birthday", "book")
MEETINGS: Final[Words] = ("lunch", "picnic", "party", "trip", "dinner", "visit")
MOODS: Final[Words] = ("blue", "quiet", "golden", "wild", "slow", "paper", "winter", "neon")
THEMES: Final[Words] = ("river", "sky", "heart", "train", "garden", "moon", "street", "fire")
SKILLS: Final[Words] = ("guitar", "yoga", "baking", "chess", "piano", "drawing", "sewing", "running")
SHOWS: Final[Words] = ("class", "show", "tips", "story")
QUARTERS: Final[Words] = ("north", "harbour", "market", "castle", "river", "hill", "union", "old")
VENUES: Final[Words] = ("cafe", "museum", "station", "library", "hotel", "bakery", "park", "cinema")
MATTERS: Final[Words] = ("rent", "trip", "garden", "team", "school", "photo", "ticket", "bank")
LETTERS: Final[Words] = ("bill", "plan", "news", "offer", "form", "list")
SUBJECTS: Final[Words] = ("word", "photo", "cash", "sleep", "chef", "quiz", "train", "plant")
PRODUCTS: Final[Words] = ("hub", "pal", "lab", "mate", "box", "den")
BRANDS: Final[Words] = ("nova", "orbit", "zest", "alto", "kite", "onyx", "ember", "lumo", "pico", "terra")
GOODS: Final[Words] = (
    "laptop", "headset", "camera", "monitor", "router", "keyboard", "toaster", "blender", "tent", "backpack",
    "drone", "kettle",
)  # fmt: skip

PEOPLE: Final = pairs(FIRST_NAMES, LAST_NAMES)
"""Of contacts, phone and mail; those of messages are among them."""
EVENTS: Final = pairs(OCCASIONS, MEETINGS)
SONGS: Final = pairs(MOODS, THEMES)
VIDEOS: Final = pairs(SKILLS, SHOWS)
PLACES: Final = pairs(QUARTERS, VENUES)
MAILS: Final = pairs(MATTERS, LETTERS)
"""Subjects of letters."""
STORE_APPS: Final = pairs(SUBJECTS, PRODUCTS)
WARES: Final = pairs(BRANDS, GOODS)
"""Products of the shop sites."""
SHOP_SITES: Final[Words] = ("costco.com", "ebay.com", "bestbuy.com", "newegg.com", "walmart.com")
MONTHS: Final[Words] = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MINUTES: Final[Words] = ("1", "3", "5", "10")
"""Minutes that a timer can be set to."""
MORE_APPS: Final[Words] = ("contacts", "phone", "calendar", "media", "store")
"""The apps of the launcher's second page; words.APPS are those of the first."""
CONTROLS: Final[Words] = (
    "call", "end", "recent", "pad", "erase", "allow", "deny", "cancel", "music", "video", "play", "pause", "next",
    "install", "uninstall", "directions", "walk", "drive", "reply", "to", "stopwatch", "timer", "start", "stop",
    "reset", "min", "accept", "refuse", "best", "price", "remove", "star", "name", "event",
)  # fmt: skip

ALL: Final[Words] = tuple(
    dict.fromkeys(
        (
            *FIRST_NAMES, *LAST_NAMES, *OCCASIONS, *MEETINGS, *MOODS, *THEMES, *SKILLS, *SHOWS, *QUARTERS, *VENUES,
            *MATTERS, *LETTERS, *SUBJECTS, *PRODUCTS, *BRANDS, *GOODS, *SHOP_SITES, *MONTHS, *MINUTES, *MORE_APPS,
            *CONTROLS, *map(str, range(1, 32)), *"0*#",
        )
    )
)  # fmt: skip
"""Every word on a widget of these apps, besides words.ALL."""


def named(entities: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Entities as screens and tasks write them."""
    return tuple(" ".join(pair) for pair in entities)
