"""A JSON object of our own, for models that were trained on no phone.

Coordinates are whole thousandths: finer than a finger, the grid that Qwen2-VL and Qwen3-VL were trained to point on,
and four digits at most, where a share such as 0.4062 takes six characters.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from distrl.policy.dialects.grid import THOUSAND, Grid, thousandths
from distrl.policy.dialects.objects import read_object
from distrl.policy.dialects.protocol import INTRODUCTION
from distrl.policy.dialects.text import checked, first, no_form, nothing_after, read, typed
from distrl.types import Action, ActionKind, ScreenSize

_MARKER: Final = re.compile(r"^[ \t]*(?=\{)", re.MULTILINE)
_PLAIN: Final = {kind.value: kind for kind in (ActionKind.BACK, ActionKind.HOME, ActionKind.ENTER, ActionKind.COMPLETE)}


class PlainJson:
    """Relative coordinates, thousandths of the screen. The object begins a line."""

    def instructions(self, size: ScreenSize) -> str:
        return (
            f"{INTRODUCTION} It is one JSON object on a line of its own. Points are [x, y], from [0, 0] in the upper "
            f"left corner of the screen to [{THOUSAND}, {THOUSAND}] in the lower right one. The actions:\n"
            '{"action": "tap", "point": [x, y]}\n'
            '{"action": "swipe", "from": [x, y], "to": [x, y]}\n'
            '{"action": "type", "text": "…"} types into the focused field\n'
            '{"action": "back"}, {"action": "home"}, {"action": "enter"} press a key\n'
            '{"action": "complete"} once the instruction is carried out'
        )

    def write(self, action: Action, size: ScreenSize) -> str:
        text = json.dumps(_fields(action, thousandths(size)), ensure_ascii=False)
        return checked(text, action, self.parse(text, size))

    def parse(self, text: str, size: ScreenSize) -> Action:
        return read(text, lambda answer: _answer(answer, thousandths(size)))


def _answer(text: str, grid: Grid) -> Action:
    marker = first(_MARKER, text)
    fields, end = read_object(text, marker.end())
    nothing_after(text, marker.start(), end)
    return _action(fields, grid)


def _action(fields: Mapping[str, Any], grid: Grid) -> Action:
    match fields:
        case {"action": "tap", "point": at, **more} if not more:
            return Action(ActionKind.TAP, touch=grid.point(at))
        case {"action": "swipe", "from": start, "to": end, **more} if not more:
            return Action(ActionKind.SWIPE, touch=grid.point(start), lift=grid.point(end))
        case {"action": "type", "text": text, **more} if not more:
            return typed(text)
        case {"action": str(kind), **more} if kind in _PLAIN and not more:
            return Action(_PLAIN[kind])
    raise ValueError("no action of ours")


def _fields(action: Action, grid: Grid) -> dict[str, object]:
    match action.kind:
        case ActionKind.TAP:
            return {"action": "tap", "point": grid.numbers(action.touch)}
        case ActionKind.SWIPE:
            return {"action": "swipe", "from": grid.numbers(action.touch), "to": grid.numbers(action.lift)}
        case ActionKind.TYPE:
            return {"action": "type", "text": action.text}
        case kind if kind in _PLAIN.values():
            return {"action": kind.value}
    raise no_form(action, "plain JSON")
