"""Lists longer than the screen: visible rows, scroll bar, and swipes.

An app stores the number of the first visible row as `first`. A swipe scrolls by one screenful of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from simphone.element import LIGHT, WIDTH, Colour, Element, Elements
from simphone.state import State

ROW: Final = 32
QUIET: Final[Colour] = (105, 105, 115)
PREFIX: Final = "row "
"""Prefix of the target of every row, so that an entry that somebody typed is never taken for a button."""
NONE: Final[Mapping[str, str]] = {}


def rows(names: Sequence[str], first: int, top: int, count: int, captions: Mapping[str, str] = NONE) -> Elements:
    """`count` rows from number `first` on, or the last ones, below `top` px. captions: small words on the right."""
    first = _clipped(first, len(names), count)
    shown: list[Element] = []
    for i, name in enumerate(names[first : first + count]):
        box = (0, top + i * ROW, WIDTH, top + (i + 1) * ROW)
        shown.append(Element("row", box, name, PREFIX + name, text=name, colour=LIGHT))
        if captions.get(name):
            shown.append(Element("caption", box, text=captions[name], colour=QUIET))
    if len(names) > count:
        height = count * ROW
        begin = top + height * first // len(names)
        shown.append(Element("scroll", (WIDTH - 4, begin, WIDTH, begin + height * count // len(names))))
    return tuple(shown)


def scrolled(state: State, app: str, total: int, count: int, direction: str) -> State:
    """The state after a swipe over a list of `total` rows, of which `count` are visible."""
    step = {"up": count, "down": -count}.get(direction, 0)
    first = _clipped(_clipped(first_of(state, app), total, count) + step, total, count)
    return state.remember(app, first=first)


def first_of(state: State, app: str) -> int:
    """The number of the first visible row, from the app's state."""
    return int(str(state.of(app)["first"]))


def row_of(target: str) -> str:
    """The entry whose row was tapped; "" for a target that is not a row."""
    return target.removeprefix(PREFIX) if target.startswith(PREFIX) else ""


def _clipped(first: int, total: int, count: int) -> int:
    return max(0, min(first, total - count))
