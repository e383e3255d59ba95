"""What of a phone's state stays when everybody has left the app: what a task changes, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from distrl.phone.state import State, Value

Kept = Mapping[tuple[str, str], Value]
"""By app and what of it."""

KEPT: Final[tuple[tuple[str, str], ...]] = (
    ("settings", "on"),
    ("clock", "alarms"),
    ("shop", "cart"),
    ("messages", "sent"),
    ("notes", "notes"),
)
PASSING: Final[tuple[tuple[str, str], ...]] = (
    ("launcher", "order"), ("settings", "shown"), ("settings", "page"), ("browser", "query"), ("browser", "result"),
    ("shop", "site"), ("shop", "query"), ("shop", "colour"), ("shop", "shelf"), ("messages", "contacts"),
    ("messages", "with"),
)  # fmt: skip
"""Where one is in an app, and what nobody can change. A test holds that each thing an app remembers is in one of both.
"""


def kept(state: State) -> dict[tuple[str, str], Value]:
    """What stays, texts in lower case: a keyboard may begin them with a capital."""
    return {(app, name): _lower(state.of(app)[name]) for app, name in KEPT}


def _lower(value: Value) -> Value:
    if isinstance(value, tuple):
        return tuple(each.lower() for each in value)
    return value.lower() if isinstance(value, str) else value
