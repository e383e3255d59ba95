"""What of a phone's state stays when everybody has left the app: what a task changes, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simphone.state import State, Value

Kept = Mapping[tuple[str, str], Value]
"""By app and what of it."""

KEPT: Final[tuple[tuple[str, str], ...]] = (
    ("settings", "on"), ("browser", "cart"), ("shop", "cart"), ("clock", "alarms"), ("clock", "watching"),
    ("messages", "sent"), ("notes", "notes"), ("mail", "inbox"), ("mail", "sent"), ("mail", "answered"),
    ("maps", "going"), ("maps", "starred"), ("contacts", "people"), ("phone", "recent"), ("calendar", "events"),
    ("store", "installed"), ("store", "old"), ("store", "pending"),
)  # fmt: skip
PASSING: Final[tuple[tuple[str, str], ...]] = (
    ("launcher", "order"), ("settings", "shown"), ("settings", "page"), ("browser", "query"), ("browser", "result"),
    ("browser", "site"), ("browser", "asked"), ("browser", "ware"), ("browser", "cheapest"), ("browser", "cookies"),
    ("browser", "first"), ("browser", "shelf"), ("clock", "watched"), ("shop", "site"), ("shop", "query"),
    ("shop", "colour"), ("shop", "shelf"), ("messages", "contacts"), ("messages", "with"), ("mail", "senders"),
    ("mail", "read"), ("mail", "mail"), ("mail", "to"), ("mail", "first"), ("maps", "location"), ("maps", "query"),
    ("maps", "place"), ("maps", "mode"), ("maps", "first"), ("contacts", "person"), ("contacts", "first"),
    ("phone", "digits"), ("phone", "asked"), ("phone", "allowed"), ("phone", "calling"), ("phone", "first"),
    ("calendar", "month"), ("calendar", "date"), ("calendar", "event"), ("calendar", "first"), ("media", "songs"),
    ("media", "videos"), ("media", "first"), ("store", "query"), ("store", "shown"), ("store", "left"),
    ("store", "first"),
)  # fmt: skip
"""Where one is in an app, what nobody can change, and what a person would not mind: permissions, letters read."""
TOGETHER: Final = {("clock", "left"), ("clock", "minutes"), ("media", "track"), ("media", "playing")}
"""What means something together alone. A test holds that each thing an app remembers is in one of the three."""


def kept(state: State) -> dict[tuple[str, str], Value]:
    """What stays, texts in lower case: a keyboard may begin them with a capital.

    Beside KEPT: the timer that runs, in minutes, and what is being played, each "" if there is none.
    """
    clock, media = state.of("clock"), state.of("media")
    return {
        **{(app, name): _lower(state.of(app)[name]) for app, name in KEPT},
        ("clock", "timer"): clock["minutes"] if clock["left"] else "",
        ("media", "on"): media["track"] if media["playing"] else "",
    }


def _lower(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(each.lower() for each in value)
    return value.lower() if isinstance(value, str) else value
