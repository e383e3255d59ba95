"""The screens of the apps, as named by `State.screen`. Dialogs are not screens."""

from __future__ import annotations

from typing import Final

from simphone.lexicon import STORE_APPS, named

SCREENS: Final = {
    "launcher": ("home", "page2", "page3"),
    "settings": ("list",),
    "browser": ("home", "results", "page", "site", "found", "ware", "cart"),
    "clock": ("face", "alarms", "stopwatch", "timer"),
    "shop": ("sites", "home", "results", "product", "done"),
    "messages": ("list", "chat"),
    "notes": ("list", "new"),
    "contacts": ("list", "person", "new"),
    "phone": ("pad", "recent", "call"),
    "calendar": ("month", "day", "new"),
    "media": ("music", "video", "player"),
    "store": ("home", "results", "app"),
    "mail": ("inbox", "letter", "to", "write"),
    "maps": ("search", "results", "place", "way"),
}
"""By app. Apps from the store have one screen, `NAME/main`."""
INSTALLED: Final = frozenset(named(STORE_APPS))


def refuse_unknown(screen: str) -> None:
    """Raises ValueError for an unknown screen, with the known ones."""
    app, _, name = screen.partition("/")
    if name in SCREENS.get(app, ()) or (app in INSTALLED and name == "main"):
        return
    there = SCREENS.get(app)
    known = ", ".join(f"{app}/{each}" for each in there) if there else f"screens of {', '.join(SCREENS)}"
    raise ValueError(f"no screen {screen[:60]!r}: there are {known}")
