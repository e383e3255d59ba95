"""What the dialects share: where in an answer the action begins and ends, and what is refused on either side.

An answer is: a thought, then one action, then nothing. The first marker of an action begins it, and nothing may follow
that action, so neither a second one nor typed text that looks like one is ever taken for it. A thought in
<think></think> may say anything. An action in a code fence or in tags ends with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from distrl.errors import PolicyError
from distrl.types import Action, ActionKind

LONGEST: Final = 32_768
"""Characters of an answer that is read. It bounds what a model that never stops costs the worker."""

_FENCE: Final = "```"
_THOUGHT: Final = re.compile(r"\s*<think>.*?</think>", re.DOTALL)


def read(text: str, action: Callable[[str], Action]) -> Action:
    """What `action` finds in `text` behind the thought; where it raises ValueError, INVALID with the whole text."""
    if len(text) <= LONGEST:
        try:
            return action(_after_thought(text))
        except (ValueError, RecursionError):  # json recurses, and refuses numbers of thousands of digits by ValueError
            pass
    return Action(ActionKind.INVALID, text=text)


def first(marker: re.Pattern[str], text: str) -> re.Match[str]:
    """Where the action begins. Raises ValueError where there is none."""
    if found := marker.search(text):
        return found
    raise ValueError("no action")


def nothing_after(text: str, start: int, end: int, tag: str = "") -> None:
    """Raises ValueError unless text[end:] closes what was open at `start` (the tag, then a code fence) and no more."""
    rest = text[end:].strip()
    for closing in [*([tag] if tag else []), *([_FENCE] if text[:start].count(_FENCE) % 2 else [])]:
        if not rest.startswith(closing):
            raise ValueError(f"no closing {closing}")
        rest = rest[len(closing) :].lstrip()
    if rest:
        raise ValueError("more than one action")


def typed(text: object) -> Action:
    """TYPE of `text`. Raises ValueError where it is no text, or half a surrogate pair, which nothing can encode."""
    if not isinstance(text, str):
        raise ValueError("no text")
    text.encode()
    return Action(ActionKind.TYPE, text=text)


def checked(text: str, action: Action, found: Action) -> str:
    """`text`, where `found`, which is what it reads as, is `action` up to the rounding of points.

    Raises PolicyError otherwise, so nothing is ever written that is read as something else.
    """
    if found.kind is not action.kind or (action.kind is ActionKind.TYPE and found.text != action.text):
        raise PolicyError(
            "action",
            f"'{action.kind.value}' with this text or these points would not be read as itself",
            "points are on the screen, and text is shorter and of whole characters",
        )
    return text


def no_form(action: Action, dialect: str) -> PolicyError:
    """The error for an action that a dialect cannot write."""
    return PolicyError("action", f"'{action.kind.value}' has no form in {dialect}", "write another action")


def _after_thought(text: str) -> str:
    if not text.lstrip().startswith("<think>"):
        return text
    if found := _THOUGHT.match(text):
        return text[found.end() :]
    raise ValueError("a thought without an end")
