"""AndroidControl (arXiv 2406.03679): an Example is an episode.

Names of features and actions: github.com/google-research/google-research, android_control/README.md, commit 0ced6d0.
There is a screenshot before each action and one after the last. Points are pixels. A scroll's direction is where more
is to be seen, so that the finger moves the other way (google-research/android_world, env/actuation.py, commit 1903b2f).
`accessibility_trees` and `step_instructions` are not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from distrl import images
from distrl.recordings.episode import MOST_STEPS, Dataset, RecordedEpisode, RecordedStep, plain_goal, typed_text
from distrl.recordings.example import Features
from distrl.text import fields_once
from distrl.types import Action, ActionKind, Point, ScreenSize

MARK: Final = "screenshots"
"""A feature that no other data set has."""
_FINGERS: Final[Mapping[str, tuple[Point, Point]]] = {
    "down": (Point(0.5, 0.8), Point(0.5, 0.2)),
    "up": (Point(0.5, 0.2), Point(0.5, 0.8)),
    "right": (Point(0.8, 0.5), Point(0.2, 0.5)),
    "left": (Point(0.2, 0.5), Point(0.8, 0.5)),
}
"""Direction of a scroll -> where the finger touches and lifts; the data set has no points."""
NO_COUNTERPART: Final = ("long_press", "open_app", "type", "wait")
"""`type` is a tap, a text and an enter in one step."""


def episode_of(features: Features, where: str) -> RecordedEpisode:
    """Raises ValueError for an Example that is no whole episode."""
    pngs, actions = features.byte_strings("screenshots"), features.texts("actions")
    if not 1 <= len(actions) <= MOST_STEPS or len(pngs) != len(actions) + 1:
        raise ValueError(f"it has {len(actions)} actions (1 to {MOST_STEPS}) and {len(pngs)} screenshots, not one more")
    widths, heights = features.integers("screenshot_widths"), features.integers("screenshot_heights")
    if not len(widths) == len(heights) == len(pngs):
        raise ValueError(f"it has {len(pngs)} screenshots, {len(widths)} widths and {len(heights)} heights")
    for number, (png, stated) in enumerate(zip(pngs, zip(widths, heights, strict=True), strict=True)):
        _check_screen(png, ScreenSize(*stated), number)
    return RecordedEpisode(
        Dataset.ANDROID_CONTROL,
        _id(features),
        plain_goal(features.text("goal")),
        tuple(
            _step(png, text, ScreenSize(width, height), number)
            for number, (png, text, width, height) in enumerate(zip(pngs, actions, widths, heights, strict=False))
        ),
        pngs[-1],
        where,
    )


def action_of(fields: Mapping[str, Any], screen: ScreenSize) -> Action | None:
    """The counterpart of an action, None where there is none. Raises ValueError for one that the data set has not."""
    match fields.get("action_type"):
        case "click":
            return Action(ActionKind.TAP, touch=Point(_share(fields, "x", screen[0]), _share(fields, "y", screen[1])))
        case "scroll":
            direction = fields.get("direction")
            if not isinstance(direction, str) or direction not in _FINGERS:
                raise ValueError(f"it scrolls {direction!r:.40}, not {', '.join(_FINGERS)}")
            touch, lift = _FINGERS[direction]
            return Action(ActionKind.SWIPE, touch=touch, lift=lift)
        case "input_text":
            return Action(ActionKind.TYPE, text=typed_text(fields.get("text")))
        case "navigate_home":
            return Action(ActionKind.HOME)
        case "navigate_back":
            return Action(ActionKind.BACK)
        case name if name in NO_COUNTERPART:
            return None
        case name:
            raise ValueError(f"no action is called {name!r:.40}")


def _id(features: Features) -> str:
    found = features.integer("episode_id")
    if found < 0:
        raise ValueError(f"its episode_id is {found}")
    return str(found)


def _step(png: bytes, text: str, screen: ScreenSize, number: int) -> RecordedStep:
    try:
        fields = json.loads(text, object_pairs_hook=fields_once)
        if not isinstance(fields, dict):
            raise ValueError("it is no JSON object")
        return RecordedStep(png, str(fields.get("action_type")), action_of(fields, screen))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"action {number}: {str(error)[:200]}") from None


def _check_screen(png: bytes, stated: ScreenSize, number: int) -> None:
    try:
        found = images.opened(png).size
    except images.ImageError as error:
        raise ValueError(f"screenshot {number} {error}") from None
    if found != stated:
        raise ValueError(f"screenshot {number} has {found[0]} x {found[1]} pixels, not {stated[0]} x {stated[1]}")


def _share(fields: Mapping[str, Any], name: str, pixels: int) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"`{name}` is {value!r:.40}, no number")
    if not 0 <= value <= pixels:  # an integer may be too large to be a float
        raise ValueError(f"`{name}` is {value!r:.40}, outside a screen of {pixels} pixels")
    return value / pixels
