"""Records for tests: each builder gives a whole one, of which a test names what it is about.

Every field of the record is a keyword. Tests of the wire have their own examples (wire/records.py), with something in
every place; a world of pictures, or of tokens that a model has to read, makes its steps in its own module, from these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from distrl.types import Action, ActionKind, ObjectRef, Outcome, Split, Step, Task, Trajectory, Version

HOME = Action(ActionKind.HOME)
SHOT = ObjectRef("screenshots/a.png", "a" * 64, 3)
"""A screenshot that is in no store."""

TASK = Task("task-0", "home", "toggle", Split.TRAIN, "turn on wifi lock", max_steps=14, phone_seed=1)
STEP = Step(
    SHOT, prompt_ids=(1,), action_ids=(2,), action=HOME, action_text="home", logprob=-1.0, version=0,
    version_sha256="b" * 64, at=0,
)  # fmt: skip
TRAJECTORY = Trajectory(
    TASK, attempt_id="a", worker="w", device="d", steps=(), final_screenshot=SHOT, outcome=Outcome.SUCCESS,
    outcome_source="ground-truth", note="", is_expert=False, started_at=0, finished_at=1,
)  # fmt: skip
VERSION = Version(
    0, parent=None, update=0, base_model_sha256="c" * 64, adapter=ObjectRef("adapters/a", "d" * 64, 1),
    config_fingerprint="f", published_at=0,
)  # fmt: skip


def task(task_id: str = TASK.task_id, **given: Any) -> Task:
    """A training task of the suite `home`."""
    return replace(TASK, task_id=task_id, **given)


def step(action: Action = HOME, **given: Any) -> Step:
    """A step of version 0, called after its action."""
    return replace(STEP, action=action, **{"action_text": action.kind.value, **given})


def trajectory(of: Task | str = TASK, steps: Iterable[Step] = (STEP,), **given: Any) -> Trajectory:
    """A success of one step. of: the task, or the id of one."""
    made = of if isinstance(of, Task) else task(of)
    return replace(TRAJECTORY, task=made, steps=tuple(steps), **given)


def version(number: int = 0, **given: Any) -> Version:
    """Published after as many updates, with the one before as its parent."""
    derived = {"parent": number - 1 if number else None, "update": number}
    return replace(VERSION, version=number, **{**derived, **given})
