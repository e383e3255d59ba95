"""UI-TARS: `Thought: …` and `Action: click(start_box='(x,y)')`.

Sources: bytedance/UI-TARS, commit 582f3a7ea5d285ee8ed9e2e84048d1ab01453c49. 1.0: README_v1.md, the prompt for mobile
(scroll from start_box to end_box; boxes in <|box_start|><|box_end|>) and "Coordinate Mapping" (thousandths). 1.5:
codes/ui_tars/prompt.py, MOBILE_USE (drag, scroll with a direction, <point>x y</point>), README_coordinates.md (pixels
of the image after the processor's resizing) and codes/ui_tars/action_parser.py (point, start_point and end_point are
other names of the boxes). A scroll's direction is where more is to be seen, so the finger moves the other way:
https://github.com/bytedance/UI-TARS/issues/129. press_enter is ours, in the shape of press_back: their prompts for
phones have the Enter key only as a line break at the end of what is typed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from distrl.policy.autoui.tokenizer import SINGLES
from distrl.policy.dialects.calls import NUMBER, NUMBERS, Call, call_marker, numbers_of, quoted, read_call
from distrl.policy.dialects.grid import Grid, GridOf
from distrl.policy.dialects.protocol import INTRODUCTION
from distrl.policy.dialects.text import checked, first, no_form, nothing_after, read, typed
from distrl.types import Action, ActionKind, Point, ScreenSize

_MARKER: Final = re.compile(
    r"\bAction:\s*|"
    + call_marker(
        *("click", "long_press", "left_double", "right_single", "type", "scroll", "drag", "open_app", "hotkey", "wait"),
        *("press_home", "press_back", "press_enter", "finished", "call_user"),
    ),
    re.ASCII,
)
"""Calls that are always refused are markers, too: else an answer with such a call and then another would be read as the
other."""
_BOX: Final = re.compile(
    rf"(?:<\|box_start\|>)?[(\[]\s*{NUMBERS}\s*[)\]](?:<\|box_end\|>)?|<point>{NUMBER}\s+{NUMBER}</point>"
)
_RENAMED: Final = {"point": "start_box", "start_point": "start_box", "end_point": "end_box"}
_FINGERS: Final = {"down": "<swipe_up>", "up": "<swipe_down>", "right": "<swipe_left>", "left": "<swipe_right>"}
_KEYS: Final = {"press_back": ActionKind.BACK, "press_home": ActionKind.HOME, "press_enter": ActionKind.ENTER}
_NAMES: Final = {kind: name for name, kind in _KEYS.items()}


@dataclass(frozen=True, slots=True)
class UITars:
    """grid: 1.0's coordinates are thousandths, 1.5's pixels. swipe: the name of the call of two boxes."""

    grid: GridOf
    swipe: str

    def instructions(self, size: ScreenSize) -> str:
        grid = self.grid(size)
        return (
            f"{INTRODUCTION} The form is:\n\n"
            "Thought: what you see and why you act, in one sentence\nAction: the call\n\n"
            f"x is from 0 at the left to {grid.columns}, y from 0 at the top to {grid.rows}. The calls:\n\n"
            "click(start_box='(x,y)')\n"
            f"{self.swipe}(start_box='(x1,y1)', end_box='(x2,y2)') # drags the finger from the first to the second\n"
            "scroll(direction='down') # or up, left, right: where more is to be seen\n"
            "type(content='') # into the focused field; write \\', \\\" and \\n for quotes and line breaks\n"
            "press_back()\npress_home()\npress_enter()\n"
            "finished(content='') # once the instruction is carried out"
        )

    def write(self, action: Action, size: ScreenSize) -> str:
        text = f"Action: {self._call(action, self.grid(size))}"
        return checked(text, action, self.parse(text, size))

    def parse(self, text: str, size: ScreenSize) -> Action:
        return read(text, lambda answer: _answer(answer, self.grid(size)))

    def _call(self, action: Action, grid: Grid) -> str:
        match action.kind:
            case ActionKind.TAP:
                return f"click(start_box='{_write_box(grid, action.touch)}')"
            case ActionKind.SWIPE:
                start, end = _write_box(grid, action.touch), _write_box(grid, action.lift)
                return f"{self.swipe}(start_box='{start}', end_box='{end}')"
            case ActionKind.TYPE:
                return f"type(content={quoted(action.text, chr(39))})"
            case ActionKind.COMPLETE:
                return "finished(content='')"
            case kind if kind in _NAMES:
                return f"{_NAMES[kind]}()"
        raise no_form(action, "UI-TARS's form")


def _answer(text: str, grid: Grid) -> Action:
    marker = first(_MARKER, text)
    call, end = read_call(text, marker.end() if marker[0].startswith("Action:") else marker.start())
    nothing_after(text, marker.start(), end)
    return _action(_renamed(call), grid)


def _action(call: Call, grid: Grid) -> Action:
    match call.name, call.arguments:
        case "click", {"start_box": box, **more} if not more:
            return Action(ActionKind.TAP, touch=_read_box(grid, box))
        case "drag" | "scroll", {"start_box": start, "end_box": end, **more} if not more:
            return Action(ActionKind.SWIPE, touch=_read_box(grid, start), lift=_read_box(grid, end))
        case "scroll", {"direction": str(direction), **more} if direction in _FINGERS and not {*more} - {"start_box"}:
            if more:
                _read_box(grid, more["start_box"])
            return SINGLES[_FINGERS[direction]]
        case "type", {"content": text, **more} if not more:
            return typed(text)
        case "finished", {**more} if not {*more} - {"content"}:
            return Action(ActionKind.COMPLETE)
        case "hotkey", {"key": "enter", **more} if not more:
            return Action(ActionKind.ENTER)
        case key, {**more} if key in _KEYS and not more:
            return Action(_KEYS[key])
    raise ValueError("no action of ours")


def _renamed(call: Call) -> Call:
    arguments = {_RENAMED.get(name, name): value for name, value in call.arguments.items()}
    if len(arguments) != len(call.arguments):
        raise ValueError("a box has two names")
    return Call(call.name, arguments)


def _write_box(grid: Grid, point: Point | None) -> str:
    x, y = grid.numbers(point)
    return f"({x},{y})"


def _read_box(grid: Grid, box: object) -> Point:
    if not isinstance(box, str) or not _BOX.fullmatch(box.strip()):
        raise ValueError("no box")
    return grid.point(numbers_of(box))
