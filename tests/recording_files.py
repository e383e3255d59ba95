"""Writes the files of AndroidControl and Android in the Wild as they are published, with screens of a simulated phone.

The frames are written by TensorBoard's writer, which is TensorFlow's own without TensorFlow.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distrl.recordings.example import Example
from PIL import Image
from simphone.machine import PhoneMachine
from tensorboard.summary.writer.record_writer import RecordWriter

WIDTH, HEIGHT = Image.open(io.BytesIO(PhoneMachine(0, 0.0).png())).size
Values = Sequence[Any]


def screens(count: int, seed: int = 0) -> list[bytes]:
    """PNGs of a phone after so many resets, each another one."""
    machine = PhoneMachine(0, 0.0)
    found = []
    for number in range(count):
        machine.reset(seed * 1000 + number, {})
        found.append(machine.png())
    return found


def example(features: Mapping[str, Values]) -> bytes:
    """An Example. Kinds follow from the values: bytes, text, int or float."""
    made = Example()
    for name, values in features.items():
        feature = made.features.feature[name]
        if not values:
            feature.SetInParent()
        elif isinstance(values[0], str | bytes):
            feature.bytes_list.value.extend(each.encode() if isinstance(each, str) else each for each in values)
        elif isinstance(values[0], int):
            feature.int64_list.value.extend(values)
        else:
            feature.float_list.value.extend(values)
    data: bytes = made.SerializeToString(deterministic=True)
    return data


def write(path: Path, records: Iterable[bytes]) -> Path:
    raw = io.BytesIO()
    writer = RecordWriter(raw)
    for record in records:
        writer.write(record)
    path.write_bytes(gzip.compress(raw.getvalue(), mtime=0))
    return path


def android_control(number: int, actions: Sequence[Mapping[str, Any]], goal: str = "turn on wifi") -> dict[str, Values]:
    """The features of an episode."""
    shown = screens(len(actions) + 1, number)
    return {
        "episode_id": [number],
        "goal": [goal],
        "screenshots": shown,
        "screenshot_widths": [WIDTH] * len(shown),
        "screenshot_heights": [HEIGHT] * len(shown),
        "actions": [json.dumps(each) for each in actions],
        "step_instructions": ["do it"] * len(actions),
        "accessibility_trees": [b"\x0a\x00"] * len(shown),
    }


def aitw(
    episode_id: str, actions: Sequence[Mapping[str, Values]], goal: str = "turn on wifi"
) -> list[dict[str, Values]]:
    """The features of each step of an episode. actions: what of a step is its own, by `results/...` names."""
    shown = screens(len(actions), 7)
    return [
        {
            "episode_id": [episode_id],
            "step_id": [index],
            "episode_length": [len(actions)],
            "goal_info": [goal],
            "android_api_level": [30],
            "image/encoded": [Image.open(io.BytesIO(png)).convert("RGB").tobytes()],
            "image/width": [WIDTH],
            "image/height": [HEIGHT],
            "image/channels": [3],
            "image/ui_annotations_positions": [0.1, 0.2, 0.05, 0.1],
            "results/action_type": [4],
            "results/type_action": [""],
            "results/yx_touch": [-1.0, -1.0],
            "results/yx_lift": [-1.0, -1.0],
            **action,
        }
        for index, (png, action) in enumerate(zip(shown, actions, strict=True))
    ]


def dual_point(touch: tuple[float, float], lift: tuple[float, float] | None = None) -> dict[str, Values]:
    """Points are (y, x)."""
    return {"results/action_type": [4], "results/yx_touch": touch, "results/yx_lift": touch if lift is None else lift}


def other(action_type: int, text: str = "") -> dict[str, Values]:
    return {"results/action_type": [action_type], "results/type_action": [text]}
