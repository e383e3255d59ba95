"""Any record of any kind, for hypothesis; and the plain form that the reference implementation takes."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any

from distrl.types import (
    Action,
    ActionKind,
    Covered,
    DeviceHealth,
    DrawnStep,
    DrawnTrajectory,
    Draws,
    Evaluation,
    Figures,
    Heartbeat,
    HeldBack,
    ObjectRef,
    Outcome,
    Point,
    PutAside,
    Record,
    Settings,
    Skipped,
    Snapshot,
    Split,
    Step,
    Task,
    Trajectory,
    Unmet,
    Update,
    Version,
    Watermark,
)
from hypothesis import strategies as st

KINDS: tuple[type[Record], ...] = (
    Task,
    Trajectory,
    Version,
    Update,
    Evaluation,
    Heartbeat,
    Settings,
    Snapshot,
    Draws,
    Figures,
)

LEAVES: dict[type, st.SearchStrategy[Any]] = {
    str: st.text(max_size=12),
    bytes: st.binary(max_size=12),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
    types.NoneType: st.none(),
}


def drawn(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a field of type `kind`: every field of every record is drawn, defaults or not."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in LEAVES:
        return LEAVES[kind]
    if isinstance(kind, types.UnionType):
        return st.one_of(map(drawn, parts))
    if origin is tuple:
        return st.lists(drawn(parts[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(drawn(parts[0]), drawn(parts[1]), max_size=3)
    if dataclasses.is_dataclass(kind):
        return st.builds(kind, **{name: drawn(field) for name, field in typing.get_type_hints(kind).items()})
    return st.sampled_from(kind)


records: st.SearchStrategy[Record] = st.one_of(map(drawn, KINDS))


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
    entropy=0.75,
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
    (Unmet("clock.alarms", "equals", '["8 am"]', "[]"), Unmet("notes.notes", "unchanged", "[]", '["käse"]')),
    '{"screen": "notes/list"}',
    "the list shows no alarm",
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
        "cpu",
    ),
    Evaluation(1, "cd" * 32, "e-1", TRAJECTORY),
    Heartbeat("worker-0", "worker", 9, 1, None, {"lag": 0.5}, (DeviceHealth("phone-0", "ready", {"lost": 1}),), (0, 3)),
    Settings(9, "learner", "process 7 on a", ("file run.yaml",), "0.1", "01" * 32, True, {"learner.seed": "3"}),
    Snapshot(9, 1, (Covered("tasks", 1, 7, "ab" * 32), Covered("versions", 0, 2, "cd" * 32)), b"\x00\xff", b"x"),
    Draws(
        3,
        "a-ride",
        9,
        (DrawnTrajectory("trajectories", 0, 12, (DrawnStep(0, 1), DrawnStep(2, 3, 0.5, -0.25, 0.125, 1.5, 2.0))),),
    ),
    Figures(3, 9, 12, {"policy_loss": 0.25, "entropy": 1.5}),
)
"""One of each kind, with something in every optional place."""
