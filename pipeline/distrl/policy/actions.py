"""AutoUI's text form of an action: what a person, a log and a report read.

    "action_type": "DUAL_POINT", "touch_point": "[0.4062, 0.1875]", "lift_point": "[0.4062, 0.1875]", "typed_text": ""

Points are [y, x] in [0, 1]; an action without points carries -1.0. In braces the form is JSON, and it is read as JSON.
A DUAL_POINT whose two points are closer than TAP_DISTANCE is a tap, as in the Android-in-the-Wild data set.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from distrl.errors import PolicyError
from distrl.text import fields_once
from distrl.types import TAP_DISTANCE, Action, ActionKind, Point

POINT_DECIMALS: Final = 4

NAMES: Final = {
    ActionKind.TAP: "DUAL_POINT",
    ActionKind.SWIPE: "DUAL_POINT",
    ActionKind.TYPE: "TYPE",
    ActionKind.BACK: "PRESS_BACK",
    ActionKind.HOME: "PRESS_HOME",
    ActionKind.ENTER: "PRESS_ENTER",
    ActionKind.COMPLETE: "STATUS_TASK_COMPLETE",
    ActionKind.INVALID: "INVALID",
}
_KINDS: Final = {name: kind for kind, name in NAMES.items() if name != "DUAL_POINT"}
_NO_POINT: Final = "[-1.0, -1.0]"


def to_text(action: Action) -> str:
    """The text form of `action`; a point is written with POINT_DECIMALS decimals."""
    touch = _write_point(action.touch)
    lift = touch if action.kind is ActionKind.TAP else _write_point(action.lift)
    fields = {
        "action_type": NAMES[action.kind],
        "touch_point": touch,
        "lift_point": lift,
        "typed_text": action.text,
    }
    return json.dumps(fields, ensure_ascii=False)[1:-1]


def parse(text: str) -> Action:
    """The action that `text` describes; the inverse of `to_text` up to the rounding of points.

    Text that is no action (malformed, an unknown type, a point outside the screen) is an INVALID action that carries
    it: a policy may write anything, so that is an outcome and no error.
    """
    try:
        fields = json.loads("{" + text + "}", object_pairs_hook=fields_once)
        return _from_fields(fields)
    except (ValueError, PolicyError, RecursionError):  # also Python's own refusal of numbers of thousands of digits
        return Action(ActionKind.INVALID, text=text)


def _from_fields(fields: dict[str, Any]) -> Action:
    expected = {"action_type", "touch_point", "lift_point", "typed_text"}
    if set(fields) != expected or not all(isinstance(value, str) for value in fields.values()):
        raise PolicyError("action", "needs four text fields", f"write {', '.join(sorted(expected))}")
    name, text = fields["action_type"], fields["typed_text"]
    if name == "DUAL_POINT":
        touch, lift = _read_point(fields["touch_point"]), _read_point(fields["lift_point"])
        if math.hypot(touch.x - lift.x, touch.y - lift.y) <= TAP_DISTANCE:
            return Action(ActionKind.TAP, touch=touch)
        return Action(ActionKind.SWIPE, touch=touch, lift=lift)
    if name not in _KINDS:
        raise PolicyError("action_type", f"'{name}' is unknown", f"one of DUAL_POINT, {', '.join(_KINDS)}")
    kind = _KINDS[name]
    return Action(kind, text=text if kind in (ActionKind.TYPE, ActionKind.INVALID) else "")


def _write_point(point: Point | None) -> str:
    return _NO_POINT if point is None else f"[{point.y:.{POINT_DECIMALS}f}, {point.x:.{POINT_DECIMALS}f}]"


def _read_point(text: str) -> Point:
    values = json.loads(text)
    if not (isinstance(values, list) and len(values) == 2 and all(_on_screen(value) for value in values)):
        raise PolicyError("point", f"'{text}' is not on the screen", "write [y, x] with both in [0, 1]")
    return Point(x=float(values[1]), y=float(values[0]))


def _on_screen(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
