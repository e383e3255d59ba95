"""Open-AutoGLM: `do(action="Tap", element=[x,y])` and `finish(message="…")`, in <answer></answer>.

Sources: zai-org/Open-AutoGLM, commit 6b18d7bed0a8b5696760b06f7d18065b150901a2: phone_agent/config/prompts_en.py and
prompts_zh.py for the calls (numbers up to 999), phone_agent/actions/handler.py for what each does (a number divided by
1000), phone_agent/model/client.py for answers without tags. Their parser takes typed text as it stands up to the last
two characters; here it is a string with escapes, so that a second action is never typed. Enter is ours, in the shape of
Back.
"""

from __future__ import annotations

import re
from typing import Final

from distrl.policy.dialects.calls import Call, call_marker, quoted, read_call
from distrl.policy.dialects.grid import THOUSAND, Grid, thousandths
from distrl.policy.dialects.protocol import INTRODUCTION
from distrl.policy.dialects.text import checked, first, no_form, nothing_after, read, typed
from distrl.types import Action, ActionKind, ScreenSize

_MARKER: Final = re.compile(rf"<answer>\s*|{call_marker('do', 'finish')}", re.ASCII)
_KEYS: Final = {"Back": ActionKind.BACK, "Home": ActionKind.HOME, "Enter": ActionKind.ENTER}
_NAMES: Final = {kind: name for name, kind in _KEYS.items()}


class OpenAutoGLM:
    """Relative coordinates, thousandths of the screen."""

    def instructions(self, size: ScreenSize) -> str:
        return (
            f"{INTRODUCTION} The form is:\n<think>what you see and why you act, in short</think>\n"
            "<answer>the call</answer>\n\n"
            f"Points are [x,y], from [0,0] in the upper left corner of the screen to [{THOUSAND},{THOUSAND}] in the "
            "lower right one. The calls:\n"
            'do(action="Tap", element=[x,y])\n'
            'do(action="Swipe", start=[x1,y1], end=[x2,y2])\n'
            'do(action="Type", text="…"): into the focused field; write \\" and \\n for quotes and line breaks\n'
            'do(action="Back")\ndo(action="Home")\ndo(action="Enter")\n'
            'finish(message="…"): once the instruction is carried out'
        )

    def write(self, action: Action, size: ScreenSize) -> str:
        text = f"<answer>{_call(action, thousandths(size))}</answer>"
        return checked(text, action, self.parse(text, size))

    def parse(self, text: str, size: ScreenSize) -> Action:
        return read(text, lambda answer: _answer(answer, thousandths(size)))


def _answer(text: str, grid: Grid) -> Action:
    marker = first(_MARKER, text)
    tagged = marker[0].startswith("<")
    call, end = read_call(text, marker.end() if tagged else marker.start())
    nothing_after(text, marker.start(), end, "</answer>" if tagged else "")
    return _action(call, grid)


def _action(call: Call, grid: Grid) -> Action:
    match call.name, call.arguments:
        case "do", {"action": "Tap", "element": at, **more} if not more:
            return Action(ActionKind.TAP, touch=grid.point(at))
        case "do", {"action": "Swipe", "start": start, "end": end, **more} if not more:
            return Action(ActionKind.SWIPE, touch=grid.point(start), lift=grid.point(end))
        case "do", {"action": "Type" | "Type_Name", "text": text, **more} if not more:
            return typed(text)
        case "do", {"action": str(key), **more} if key in _KEYS and not more:
            return Action(_KEYS[key])
        case "finish", {**more} if not {*more} - {"message"}:
            return Action(ActionKind.COMPLETE)
    raise ValueError("no action of ours")


def _call(action: Action, grid: Grid) -> str:
    match action.kind:
        case ActionKind.TAP:
            x, y = grid.numbers(action.touch)
            return f'do(action="Tap", element=[{x},{y}])'
        case ActionKind.SWIPE:
            (x1, y1), (x2, y2) = grid.numbers(action.touch), grid.numbers(action.lift)
            return f'do(action="Swipe", start=[{x1},{y1}], end=[{x2},{y2}])'
        case ActionKind.TYPE:
            return f'do(action="Type", text={quoted(action.text, chr(34))})'
        case ActionKind.COMPLETE:
            return 'finish(message="")'
        case kind if kind in _NAMES:
            return f'do(action="{_NAMES[kind]}")'
    raise no_form(action, "Open-AutoGLM's form")
