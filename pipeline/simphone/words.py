"""Every word that a phone shows, a task contains or a policy may have to type: the policy's vocabulary.

Entities (the objects of tasks) are pairs of these words, so that a split can hold out pairs whose words are known.
"""

from __future__ import annotations

from typing import Final

Words = tuple[str, ...]

COLOURS: Final[Words] = ("red", "blue", "green", "yellow", "pink", "black", "orange", "purple")
NOUNS: Final[Words] = ("shoes", "lamp", "phone", "chair", "book", "watch", "bag", "cup")
SWITCHES: Final[Words] = ("wifi", "night", "data", "sound", "screen", "battery")
SWITCH_KINDS: Final[Words] = ("saver", "lock", "sync", "alert")
FIRST_NAMES: Final[Words] = ("anna", "ben", "cara", "dan", "eve", "finn")
LAST_NAMES: Final[Words] = ("lee", "fox", "hill", "stone")
HOURS: Final[Words] = ("6", "7", "8", "9", "10", "11")
HALVES: Final[Words] = ("am", "pm")
SITES: Final[Words] = ("amazon", "ebay", "etsy")
APPS: Final[Words] = ("settings", "browser", "shop", "clock", "messages", "notes", "mail", "maps")
RANKS: Final[Words] = ("1", "2", "3", "4")
CONTROLS: Final[Words] = (
    "search", "go", "send", "save", "new", "delete", "cart", "add", "close", "later", "ok", "rate", "alarm", "result",
    "update", "ready", "this", "app", "sale", "page", "message", "type", "done", "on", "off",
)  # fmt: skip
SPEECH: Final[Words] = (
    "turn", "switch", "for", "look", "up", "and", "open", "set", "an", "wake", "me", "at", "to", "buy", "from", "tell",
    "write", "a", "note", "saying", "make", "in", "put", "the", "touch", "tap", "press", "find",
)  # fmt: skip

ALL: Final[Words] = tuple(
    dict.fromkeys(
        (
            *COLOURS, *NOUNS, *SWITCHES, *SWITCH_KINDS, *FIRST_NAMES, *LAST_NAMES, *HOURS, *HALVES, *SITES, *APPS,
            *RANKS, *CONTROLS, *SPEECH,
        )
    )
)  # fmt: skip


def pairs(first: Words, second: Words) -> tuple[tuple[str, str], ...]:
    return tuple((one, other) for one in first for other in second)
