"""Qwen's `mobile_use`: a tool call in JSON.

Sources: QwenLM/Qwen3-VL (which holds Qwen2.5-VL's, too), cookbooks/utils/agent_function_call.py of commit
96588727e44c78b25ba03ea03b8e12f7e64fd0da for the function and its arguments; cookbooks/mobile_agent.ipynb for what the
models answer: of commit 8cdcb85d224a71da4a999e73877fd5c686db5237 Qwen2.5-VL, in pixels of the image after the
processor's resizing, and of 96588727 Qwen3-VL, relative, with a thought before the call. That notebook names a screen
of 999x999 and divides by 999, cookbooks/spatial_understanding.ipynb divides by 1000: the two differ by a thousandth of
the screen at most, and 1000 reads the numbers of both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from distrl.policy.dialects.grid import Grid, GridOf
from distrl.policy.dialects.objects import read_object
from distrl.policy.dialects.protocol import INTRODUCTION
from distrl.policy.dialects.text import checked, first, no_form, nothing_after, read, typed
from distrl.types import Action, ActionKind, ScreenSize

_MARKER: Final = re.compile(r"<tool_call>\s*|^[ \t]*(?=\{)", re.MULTILINE)
_KEYS: Final = {"back": ActionKind.BACK, "home": ActionKind.HOME, "enter": ActionKind.ENTER}
_BUTTONS: Final = {kind: name.capitalize() for name, kind in _KEYS.items()}


@dataclass(frozen=True, slots=True)
class MobileUse:
    """grid: Qwen2.5-VL's coordinates are pixels, Qwen3-VL's thousandths."""

    grid: GridOf

    def instructions(self, size: ScreenSize) -> str:
        function = json.dumps({"type": "function", "function": _function(self.grid(size))})
        form = '<tool_call>\n{"name": "mobile_use", "arguments": {"action": …}}\n</tool_call>'
        return (
            f"{INTRODUCTION}\n\n# Tools\n\nThe action is a call of this function:\n<tools>\n{function}\n</tools>\n\n"
            f"The call is JSON in <tool_call></tool_call>:\n{form}"
        )

    def write(self, action: Action, size: ScreenSize) -> str:
        call = {"name": "mobile_use", "arguments": _arguments(action, self.grid(size))}
        text = f"<tool_call>\n{json.dumps(call, ensure_ascii=False)}\n</tool_call>"
        return checked(text, action, self.parse(text, size))

    def parse(self, text: str, size: ScreenSize) -> Action:
        return read(text, lambda answer: _answer(answer, self.grid(size)))


def _answer(text: str, grid: Grid) -> Action:
    marker = first(_MARKER, text)
    call, end = read_object(text, marker.end())
    nothing_after(text, marker.start(), end, "</tool_call>" if "<" in marker[0] else "")
    match call:
        case {"name": "mobile_use", "arguments": dict(arguments)} if len(call) == 2:
            return _action(arguments, grid)
    raise ValueError("no call of mobile_use")


def _action(arguments: Mapping[str, Any], grid: Grid) -> Action:
    """An argument that the action does not take makes it ambiguous, so it is refused with it."""
    match arguments:
        case {"action": "click", "coordinate": at, **more} if not more:
            return Action(ActionKind.TAP, touch=grid.point(at))
        case {"action": "swipe", "coordinate": start, "coordinate2": end, **more} if not more:
            return Action(ActionKind.SWIPE, touch=grid.point(start), lift=grid.point(end))
        case {"action": "type", "text": text, **more} if not more:
            return typed(text)
        case {"action": "system_button", "button": str(button), **more} if not more and button.lower() in _KEYS:
            return Action(_KEYS[button.lower()])
        case {"action": "key", "text": str(key), **more} if not more and _key(key) in _KEYS:
            return Action(_KEYS[_key(key)])
        case {"action": "terminate", "status": "success", **more} if not more:
            return Action(ActionKind.COMPLETE)
    raise ValueError("no action of ours")


def _key(name: str) -> str:
    return name.lower().removeprefix("keycode_")


def _arguments(action: Action, grid: Grid) -> dict[str, object]:
    match action.kind:
        case ActionKind.TAP:
            return {"action": "click", "coordinate": grid.numbers(action.touch)}
        case ActionKind.SWIPE:
            start, end = grid.numbers(action.touch), grid.numbers(action.lift)
            return {"action": "swipe", "coordinate": start, "coordinate2": end}
        case ActionKind.TYPE:
            return {"action": "type", "text": action.text}
        case ActionKind.COMPLETE:
            return {"action": "terminate", "status": "success"}
        case kind if kind in _BUTTONS:
            return {"action": "system_button", "button": _BUTTONS[kind]}
    raise no_form(action, "mobile_use")


def _function(grid: Grid) -> dict[str, object]:
    """The function's signature: the model's names, and only what a phone of ours does."""
    place = f"(x, y) with x from 0 at the left to {grid.columns}, y from 0 at the top to {grid.rows}."
    return {
        "name": "mobile_use",
        "description": f"Acts on the phone's touch screen. The screen's resolution is {grid.columns}x{grid.rows}.",
        "parameters": {
            "type": "object",
            "properties": {
                "action": {
                    "type": "string",
                    "enum": ["click", "swipe", "type", "system_button", "terminate"],
                    "description": "`click` taps at `coordinate`; `swipe` drags from `coordinate` to `coordinate2`; "
                    "`type` writes `text` into the focused field; `system_button` presses `button`; `terminate` ends "
                    "the task once the instruction is carried out.",
                },
                "coordinate": {"type": "array", "description": f"{place} For `click` and `swipe`."},
                "coordinate2": {"type": "array", "description": f"{place} For `swipe`."},
                "text": {"type": "string", "description": "For `type`."},
                "button": {
                    "type": "string",
                    "enum": list(_BUTTONS.values()),
                    "description": "For `system_button`.",
                },
                "status": {"type": "string", "enum": ["success"], "description": "For `terminate`."},
            },
            "required": ["action"],
        },
    }
