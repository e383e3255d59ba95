"""The blinking cursor of a text field. Pure: the time is an argument.

Only phones of the kind `moving` show it (profiles.py): base models have learned focused fields without it.
"""

from __future__ import annotations

from typing import Final

from simphone.element import INK, Element, Elements
from simphone.pen import font

BLINK_S: Final = 0.5
"""Seconds that it is shown and then hidden, as on Android."""


def cursor(elements: Elements, seconds: float) -> Elements:
    """The cursor behind the text of the focused field, if one is among `elements`."""
    if int(seconds / BLINK_S) % 2:
        return ()
    found = []
    for element in elements:
        if element.kind == "field" and element.on:
            left, top, right, bottom = element.box
            x = min(left + 8 + round(font(11).getlength(element.text)), right - 4)
            found.append(Element("picture", (x, top + 8, x + 2, bottom - 8), colour=INK))
    return tuple(found)
