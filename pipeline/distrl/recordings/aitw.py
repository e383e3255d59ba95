"""Android in the Wild (arXiv 2307.10088): an Example is a step; those of an episode follow each other.

Names of features: github.com/google-research/google-research, android_in_the_wild/README.md, commit 6faa0b7; their
types, and the screenshot as raw bytes: visualization_utils.py and demo.ipynb there; numbers of actions: action_type.py,
commit 4c42994. Points and boxes are shares of the screen, y before x.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from PIL import Image

from distrl.images import MAX_PIXELS
from distrl.recordings.episode import (
    EPISODE_ID,
    MOST_STEPS,
    Box,
    Dataset,
    RecordedEpisode,
    RecordedStep,
    plain_goal,
    typed_text,
)
from distrl.recordings.example import Features
from distrl.types import TAP_DISTANCE, Action, ActionKind, Point

MARK: Final = "image/encoded"
"""A feature that no other data set has."""
MOST_BOXES: Final = 1_000
_TYPE, _DUAL_POINT, _IMPOSSIBLE = 3, 4, 11
_KINDS: Final = {5: ActionKind.BACK, 6: ActionKind.HOME, 7: ActionKind.ENTER, 10: ActionKind.COMPLETE}
_NAMES: Final = {_TYPE: "TYPE", 5: "PRESS_BACK", 6: "PRESS_HOME", 7: "PRESS_ENTER", 10: "STATUS_TASK_COMPLETE",
                 _IMPOSSIBLE: "STATUS_TASK_IMPOSSIBLE"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Part:
    """One step, and where in its episode it belongs."""

    index: int
    length: int
    """Of the episode, in steps."""
    goal: str
    step: RecordedStep


def id_of(features: Features) -> str:
    """Raises ValueError."""
    found = features.text("episode_id")
    if not EPISODE_ID.fullmatch(found):
        raise ValueError(f"its episode_id {found!r:.80} is not 1 to 63 of letters, digits, '.', '_' and '-'")
    return found


def part_of(features: Features) -> Part:
    """Raises ValueError for an Example that is no step."""
    index, length = features.integer("step_id"), features.integer("episode_length")
    if not 0 <= index < length <= MOST_STEPS:
        raise ValueError(f"it is step {index} of {length}; an episode has 1 to {MOST_STEPS} of them, from 0")
    name, action = _action(features)
    return Part(
        index,
        length,
        plain_goal(features.text("goal_info")),
        RecordedStep(_png(features), name, action, _boxes(features)),
    )


def assembled(episode_id: str, parts: Sequence[Part], where: str) -> RecordedEpisode:
    """Raises ValueError where steps are missing, there twice, or do not agree on length and goal."""
    ordered = sorted(parts, key=lambda part: part.index)
    length = ordered[0].length
    if [part.index for part in ordered] != list(range(length)):
        raise ValueError(f"it has {len(ordered)} of its {length} steps, or one of them twice")
    if len({(part.length, part.goal) for part in ordered}) > 1:
        raise ValueError("its steps do not agree on its length or its goal")
    return RecordedEpisode(Dataset.AITW, episode_id, ordered[0].goal, tuple(part.step for part in ordered), None, where)


def _action(features: Features) -> tuple[str, Action | None]:
    number = features.integer("results/action_type")
    if number == _DUAL_POINT:
        touch, lift = _point(features, "results/yx_touch"), _point(features, "results/yx_lift")
        if math.hypot(touch.x - lift.x, touch.y - lift.y) <= TAP_DISTANCE:
            return "tap", Action(ActionKind.TAP, touch=touch)
        return "swipe", Action(ActionKind.SWIPE, touch=touch, lift=lift)
    if number not in _NAMES:
        raise ValueError(f"no action has the type {number}")
    if number == _TYPE:
        return _NAMES[number], Action(ActionKind.TYPE, text=typed_text(features.text("results/type_action")))
    return _NAMES[number], Action(_KINDS[number]) if number in _KINDS else None


def _point(features: Features, name: str) -> Point:
    """A finger that leaves the screen is at its edge."""
    values = features.floats(name)
    if len(values) != 2 or not all(map(math.isfinite, values)):
        raise ValueError(f"`{name}` is no (y, x)")
    y, x = (min(1.0, max(0.0, value)) for value in values)
    return Point(x=x, y=y)


def _boxes(features: Features) -> tuple[Box, ...]:
    name = "image/ui_annotations_positions"
    flat = features.floats(name) if name in features else ()
    if len(flat) % 4 or len(flat) > 4 * MOST_BOXES or not all(map(math.isfinite, flat)):
        raise ValueError(f"`{name}` has {len(flat)} numbers, not 4 for each of at most {MOST_BOXES} boxes")
    return tuple((flat[at], flat[at + 1], flat[at + 2], flat[at + 3]) for at in range(0, len(flat), 4))


def _png(features: Features) -> bytes:
    """The screenshot, which is raw RGB, as PNG."""
    sizes = [features.integer(f"image/{name}") for name in ("width", "height", "channels")]
    width, height, channels = sizes
    raw = features.byte_strings(MARK)
    expected = width * height * 3
    if channels != 3 or min(sizes) < 1 or width * height > MAX_PIXELS or [len(each) for each in raw] != [expected]:
        found = f"{len(raw)} values" if len(raw) != 1 else f"{len(raw[0])} bytes"
        raise ValueError(
            f"`{MARK}` has {found}; {width} x {height} pixels of {channels} bytes are no RGB picture of that"
        )
    out = io.BytesIO()
    Image.frombytes("RGB", (width, height), raw[0]).save(out, "PNG")
    return out.getvalue()
