"""The persistent part of a phone's state, which stays after leaving an app: what a task changes, or must not change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simphone.state import State, Value

from distrl.tasks.conditions import Unmets, unmet

Kept = Mapping[tuple[str, str], Value]
"""(app, name of the value) -> value."""

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
"""Not compared: navigation within an app, what nobody can change, harmless changes (permissions, letters read)."""
TOGETHER: Final = {("clock", "left"), ("clock", "minutes"), ("media", "track"), ("media", "playing")}
"""Values with a meaning only together. A test checks that every value of an app's state is in one of the three."""


def kept(state: State) -> dict[tuple[str, str], Value]:
    """The persistent state, texts in lower case, as a keyboard may capitalise them.

    Beside KEPT: the running timer, in minutes, and the playing track, each "" if there is none.
    """
    clock, media = state.of("clock"), state.of("media")
    return {
        **{(app, name): _lower(state.of(app)[name]) for app, name in KEPT},
        ("clock", "timer"): clock["minutes"] if clock["left"] else "",
        ("media", "on"): media["track"] if media["playing"] else "",
    }


def differences(before: Kept, changes: Kept, found: Kept) -> Unmets:
    """Where `found` is not `before` with `changes`: first the changes that are missing, then those that nobody asked
    for."""
    missing = [key for key, value in changes.items() if found.get(key) != value]
    unwanted = [key for key, value in before.items() if key not in changes and found.get(key) != value]
    return (
        *(unmet(".".join(key), "equals", changes[key], found.get(key, "")) for key in missing),
        *(unmet(".".join(key), "unchanged", before[key], found.get(key, "")) for key in unwanted),
    )


def _lower(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(each.lower() for each in value)
    return value.lower() if isinstance(value, str) else value
