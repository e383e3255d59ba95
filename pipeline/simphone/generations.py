"""UI generations: the same apps redrawn, to test an agent on a newer UI than it was trained on.

In the paper's case study (appendix A.1), agents trained on an older system open the wrong app, or look for a widget at
its old place; here the change is a setting. Generation 0 is the original UI, which the demo learns on. Each later one
keeps the changes before it. Targets, and so every task and its check, are the same in all of them.
"""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from simphone.element import WIDTH, Colour, Element, Elements

RECOLOURED, MOVED, RENAMED, RESTYLED = 1, 2, 3, 4
"""The generation from which each change is seen."""
NEWEST: Final = RESTYLED

NAMES: Final = {
    "settings": "setup",
    "browser": "web",
    "shop": "store",
    "clock": "time",
    "messages": "chat",
    "notes": "memo",
    "search": "find",
    "send": "submit",
    "save": "keep",
    "new": "create",
    "go": "start",
    "alarm": "wake up",
    "later": "not now",
    "add to cart": "to basket",
    "cart": "basket",
    "contacts": "people",
    "calendar": "agenda",
    "media": "player",
    "store": "market",
    "install": "get",
    "uninstall": "get rid",
    "delete": "discard",
    "call": "dial",
    "reply": "answer",
    "directions": "the way",
    "stopwatch": "chrono",
    "timer": "countdown",
}
"""Names of apps and controls from RENAMED on. Names in tasks (sites, switches, contacts, times, items) never change."""
HUE_TURN: Final = 0.38
TINTED: Final = ("bar", "icon", "button", "tab", "tile", "bubble", "round", "play", "pause", "next", "avatar", "day")
"""Kinds whose colour may change; not products, whose colour tasks ask for."""


def generation_of(number: int, generations: Sequence[int], otherwise: int) -> int:
    """Of phone `number` where phones take turns; `otherwise` where there are no generations to take."""
    return generations[number % len(generations)] if generations else otherwise


def redrawn(elements: Elements, generation: int) -> Elements:
    """A screen's elements in that generation; targets do not change."""
    return elements if generation == 0 else tuple(_redrawn(element, generation) for element in elements)


def _redrawn(element: Element, generation: int) -> Element:
    left, top, right, bottom = element.box
    moved = generation >= MOVED and element.kind not in ("toggle", "field")  # their own parts have a fixed side
    drawn = replace(
        element,
        colour=_turned(element.colour) if element.kind in TINTED else element.colour,
        box=(WIDTH - right, top, WIDTH - left, bottom) if moved else element.box,
        outlined=generation >= RESTYLED,
    )
    return renamed(drawn) if generation >= RENAMED else drawn


def renamed(element: Element) -> Element:
    """The element with its newer name; what stands in a row or a field is not the UI's, and stays."""
    return replace(
        element,
        label=NAMES.get(element.label, element.label),
        text=NAMES.get(element.text, element.text) if element.kind == "bar" else element.text,
    )


def _turned(colour: Colour) -> Colour:
    hue, lightness, saturation = colorsys.rgb_to_hls(*(channel / 255 for channel in colour))
    red, green, blue = colorsys.hls_to_rgb((hue + HUE_TURN) % 1.0, lightness, saturation)
    return round(red * 255), round(green * 255), round(blue * 255)
