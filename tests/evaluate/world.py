"""A run in memory: versions a second apart, updates of four trajectories, screens of one colour."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence

import factories
from distrl.errors import StoreError
from distrl.types import (
    Action,
    ActionKind,
    Evaluation,
    LoggedTrajectory,
    LogPosition,
    ObjectRef,
    Outcome,
    Point,
    Split,
    Task,
    Trajectory,
    Update,
    Version,
    Watermark,
)
from PIL import Image

TOPIC = "distrl.test.trajectories"
TAP = Action(ActionKind.TAP, Point(0.5, 0.5))
TYPE = Action(ActionKind.TYPE, text="<script>alert(1)</script>")
PNGS: dict[str, bytes] = {}


def screen(grey: int) -> ObjectRef:
    out = io.BytesIO()
    Image.new("RGB", (54, 120), (grey, grey, grey)).save(out, "PNG")
    png = out.getvalue()
    sha256 = hashlib.sha256(png).hexdigest()
    PNGS[sha256] = png
    return ObjectRef(f"screenshots/{sha256}.png", sha256, len(png))


def read(ref: ObjectRef) -> bytes:
    if ref.sha256 not in PNGS:
        raise StoreError(ref.key, "is missing", "restore it")
    return PNGS[ref.sha256]


def task(name: str, family: str = "toggle", split: Split = Split.TEST, instruction: str = "turn it on") -> Task:
    return factories.task(name, family=family, split=split, instruction=instruction, max_steps=9)


def trajectory(
    of: Task,
    outcome: Outcome = Outcome.SUCCESS,
    versions: Sequence[int] = (0,),
    actions: Sequence[Action] = (),
    worker: str = "worker-0",
    started_at: int = 0,
    steps_at: Sequence[int] = (),
) -> Trajectory:
    chosen = actions or [TAP] * len(versions)
    times = steps_at or [started_at + 100 * (n + 1) for n in range(len(versions))]
    steps = tuple(
        factories.step(action, screenshot=screen(40 * n), version=version, at=at)
        for n, (version, action, at) in enumerate(zip(versions, chosen, times, strict=True))
    )
    finished = max([started_at, *times]) + 50
    return factories.trajectory(
        of,
        steps,
        worker=worker,
        device="phone-0",
        final_screenshot=screen(250),
        outcome=outcome,
        started_at=started_at,
        finished_at=finished,
    )


def logged(trajectories: Sequence[Trajectory]) -> list[LoggedTrajectory]:
    return [LoggedTrajectory(LogPosition(TOPIC, 0, n), each) for n, each in enumerate(trajectories)]


def version(number: int, update: int) -> Version:
    adapter = ObjectRef("adapters/x", f"{number:064d}", 1)
    return factories.version(number, update=update, adapter=adapter, published_at=1000 * number)


def update(u: int, offset: int) -> Update:
    return Update(u, (Watermark("distrl.test.demonstrations", 0, 99), Watermark(TOPIC, 0, offset)), "f", 0)


def evaluation(number: int, of: Trajectory) -> Evaluation:
    return Evaluation(number, "s", f"{number}-{of.task_id}", of)
