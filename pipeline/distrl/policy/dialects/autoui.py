"""AutoUI's form: four quoted fields, as in `distrl.policy.actions`.

Source: cooelf/Auto-GUI, utils_data.py of commit 0a82de0b4edae5215a8510549bf1a426b02384eb: the fields, and a plan before
them, which is skipped like any thought.
"""

from __future__ import annotations

import re
from typing import Final

from distrl.policy.actions import parse, to_text
from distrl.policy.dialects.protocol import INTRODUCTION
from distrl.policy.dialects.text import checked, first, no_form, read, typed
from distrl.types import TAP_DISTANCE, Action, ActionKind, Point, ScreenSize

_MARKER: Final = re.compile('"action_type"')


class AutoUI:
    """Relative coordinates, [y, x] from 0 to 1 with four decimals. A swipe shorter than TAP_DISTANCE has no form."""

    def instructions(self, size: ScreenSize) -> str:
        near, far = Point(0.25, 0.75), Point(0.25, 0.25)
        return "\n".join(
            [
                f"{INTRODUCTION} It is one line of four fields. Points are [y, x], as shares of the screen's height "
                "and width from the upper left corner; an action without points has -1.0 for them. The actions:",
                f"A tap: {to_text(Action(ActionKind.TAP, touch=near))}",
                f"A swipe, longer than {TAP_DISTANCE}: {to_text(Action(ActionKind.SWIPE, touch=near, lift=far))}",
                f"Text for the focused field: {to_text(Action(ActionKind.TYPE, text='hello'))}",
                f"The back key, and likewise PRESS_HOME and PRESS_ENTER: {to_text(Action(ActionKind.BACK))}",
                f"Once the instruction is carried out: {to_text(Action(ActionKind.COMPLETE))}",
            ]
        )

    def write(self, action: Action, size: ScreenSize) -> str:
        if action.kind is ActionKind.INVALID:
            raise no_form(action, "AutoUI's form")
        text = to_text(action)
        return checked(text, action, self.parse(text, size))

    def parse(self, text: str, size: ScreenSize) -> Action:
        return read(text, _action)


def _action(text: str) -> Action:
    start = first(_MARKER, text).start()
    fenced = text[:start].count("```") % 2 == 1
    fields = text[start:].rstrip()
    if fenced and not fields.endswith("```"):
        raise ValueError("a code fence without an end")
    action = parse(fields.removesuffix("```") if fenced else fields)
    if action.kind is ActionKind.INVALID:
        raise ValueError("no action of AutoUI's")
    return typed(action.text) if action.kind is ActionKind.TYPE else action
