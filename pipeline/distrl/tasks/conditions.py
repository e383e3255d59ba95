"""Conditions on a phone's state, each returning what is not met, for checks of tasks. Pure.

A path is `screen`, `dialog` or `loading` of the phone, or `app.value` of what an app remembers.
"""

from __future__ import annotations

import json
from typing import Final

from simphone.state import ADVERT, State, Value

from distrl.text import encodable
from distrl.types import Unmet

Unmets = tuple[Unmet, ...]
"""Empty where everything is met."""

MAX_TEXT: Final = 400
"""Most characters of `wanted` and of `found`: a list that a task is about has about 100, and a field of the phone 200;
records stay small whatever was typed."""
SMALL_WORDS: Final = {"a", "an", "the", "of"}
"""Words that a search does not need: "peru currency" is a search for the currency of Peru."""


def equals(now: State, path: str, wanted: Value) -> Unmets:
    found = value_at(now, path)
    return () if found == wanted else (unmet(path, "equals", wanted, found),)


def has_words(now: State, path: str, text: str) -> Unmets:
    """Whether a search has every word of `text`; further words are allowed, as when the whole question is typed."""
    query = str(value_at(now, path))
    return () if set(text.split()) - SMALL_WORDS <= set(words_in(query)) else (unmet(path, "has words", text, query),)


def nothing_in_front(now: State) -> Unmets:
    """No pop-up, dialog, advert or loading screen hides the app."""
    advert = () if now.screen != ADVERT else (unmet("screen", "lacks", ADVERT, now.screen),)
    return (*equals(now, "dialog", ""), *advert, *equals(now, "loading", 0))


def value_at(now: State, path: str) -> Value:
    """Raises KeyError for a path that no phone has."""
    app, dot, name = path.partition(".")
    if dot:
        return now.of(app)[name]
    in_front: dict[str, Value] = {"screen": now.screen, "dialog": now.dialog, "loading": now.loading}
    return in_front[path]


def words_in(query: str) -> list[str]:
    """The words of a search, in lower case and without punctuation."""
    return [word.strip(".,?!\"'") for word in query.lower().split()]


def unmet(path: str, rule: str, wanted: Value, found: Value) -> Unmet:
    return Unmet(path, rule, as_text(wanted), as_text(found))


def as_text(value: Value) -> str:
    """JSON, cut at MAX_TEXT characters."""
    text = encodable(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
