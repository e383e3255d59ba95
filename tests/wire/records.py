"""Any record of any kind, for hypothesis; and the plain form that the reference implementation takes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

from distrl.types import (
    Action,
    ActionKind,
    DeviceHealth,
    Evaluation,
    Heartbeat,
    HeldBack,
    ObjectRef,
    Outcome,
    Point,
    PutAside,
    Record,
    Skipped,
    Split,
    Step,
    Task,
    Trajectory,
    Update,
    Version,
    Watermark,
)
from hypothesis import strategies as st

KINDS: tuple[type[Record], ...] = (Task, Trajectory, Version, Update, Evaluation, Heartbeat)

text = st.text(max_size=12)
longs = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(allow_nan=False)
ids = st.lists(longs, max_size=4).map(tuple)

points = st.builds(Point, floats, floats)
refs = st.builds(ObjectRef, text, text, longs)
actions = st.builds(Action, st.sampled_from(ActionKind), st.none() | points, st.none() | points, text)
tasks = st.builds(
    Task, text, text, text, st.sampled_from(Split), text, longs, longs,
    st.dictionaries(text, text, max_size=3), text, longs, longs,
)  # fmt: skip
steps = st.builds(
    Step, refs, ids, ids, actions, text, floats, longs, text, longs, floats, floats, floats, floats,
    st.none() | st.booleans(), st.sampled_from(HeldBack), st.booleans(),
)  # fmt: skip
trajectories = st.builds(
    Trajectory, tasks, text, text, text, st.lists(steps, max_size=2).map(tuple), st.none() | refs,
    st.sampled_from(Outcome), text, text, st.booleans(), longs, longs, text, st.booleans(),
)  # fmt: skip
versions = st.builds(Version, longs, st.none() | longs, longs, text, refs, text, longs)
marks = st.builds(Watermark, text, longs, longs)
asides = st.builds(PutAside, text, longs, ids)
updates = st.builds(
    Update, longs, st.lists(marks, max_size=3).map(tuple), text, longs, st.lists(asides, max_size=2).map(tuple)
)
evaluations = st.builds(Evaluation, longs, text, text, trajectories)
health = st.builds(DeviceHealth, text, text, st.dictionaries(text, longs, max_size=3))
heartbeats = st.builds(
    Heartbeat, text, text, longs, st.none() | longs, st.none() | text,
    st.dictionaries(text, floats, max_size=3), st.lists(health, max_size=2).map(tuple), st.none() | ids,
)  # fmt: skip

records: st.SearchStrategy[Record] = st.one_of(tasks, trajectories, versions, updates, evaluations, heartbeats)


def plain(value: Any) -> Any:
    """`value` as dicts, lists and scalars by a generic walk: an independent twin of convert.py."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: plain(value[key]) for key in sorted(value)}
    return [plain(item) for item in value] if isinstance(value, tuple) else value


REF = ObjectRef(f"screenshots/2025-01-31/{'ab' * 32}.png", "ab" * 32, 3000)

STEP = Step(
    screenshot=REF,
    prompt_ids=(5, 260, 7),
    action_ids=(3, 9, 14, 1),
    action=Action(ActionKind.SWIPE, Point(0.5, 0.25), Point(0.5, 0.75)),
    action_text="swipe up",
    logprob=-1.5,
    version=7,
    version_sha256="cd" * 32,
    at=1_738_000_000_000,
    phone_ms=60.5,
    valid=False,
    held_back=HeldBack.REFUSED,
    restless=True,
)

TASK = Task(
    "t-1",
    "home",
    "alarm",
    Split.VALIDATION,
    "set an alarm für 07:30",
    10,
    5,
    {"hour": "07", "minute": "30"},
    "{}",
    1,
    6,
)

TRAJECTORY = Trajectory(
    TASK,
    "a-1",
    "worker-0",
    "phone-0",
    (STEP, STEP),
    REF,
    Outcome.UNKNOWN,
    "truth",
    "",
    True,
    1,
    2,
    "vlm:a-model",
    True,
)

EXAMPLES: tuple[Record, ...] = (
    TASK,
    TRAJECTORY,
    Version(1, 0, 4, "ef" * 32, REF, "01" * 32, 9, (0,)),
    Update(
        3,
        (Watermark("distrl.demo.trajectories", 0, 64),),
        "01" * 32,
        9,
        (PutAside("distrl.demo.trajectories", 0, (5, 63)),),
        "ab" * 32,
        "topic-id-1,topic-id-2",
        7,
        "the log ends before it",
        (Skipped("distrl.demo.trajectories", 0, 8, "cd" * 32, "its screenshot is gone"),),
    ),
    Evaluation(1, "cd" * 32, "e-1", TRAJECTORY),
    Heartbeat("worker-0", "worker", 9, 1, None, {"lag": 0.5}, (DeviceHealth("phone-0", "ready", {"lost": 1}),), (0, 3)),
)
"""One of each kind, with something in every optional place."""
