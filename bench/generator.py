"""Records as workers write them, in size and shape; their screenshots are in no store."""

from __future__ import annotations

import random
import uuid
from dataclasses import replace

from distrl.types import Action, ActionKind, ObjectRef, Outcome, Point, Split, Step, Task, Trajectory

STEPS = (3, 14)
"""Fewest and most steps of a trajectory: those of the suite `home`."""

PATTERNS = 64
"""Trajectories with steps of their own that `Attempts` repeats: more than a producer compresses together."""


def trajectory(number: int, rule: random.Random) -> Trajectory:
    """The attempt at a made-up task. All its steps name one screenshot."""
    name = f"{rule.getrandbits(256):064x}"
    steps = tuple(_step(name, rule) for _ in range(rule.randint(*STEPS)))
    task = Task(
        f"bench-{number:08d}", "home", "search", Split.TRAIN, "open browser and search for red shoes", 14, number
    )
    return _attempt(task, steps, rule)


class Attempts:
    """Attempts of so many steps at given tasks. Each step names a screenshot that no other names."""

    def __init__(self, steps: int, rule: random.Random) -> None:
        self._rule = rule
        self._patterns = [tuple(_step("", rule) for _ in range(steps)) for _ in range(PATTERNS)]

    def at(self, task: Task, version: int) -> Trajectory:
        """An attempt whose every step `version` chose."""
        steps = tuple(self._seen(step, version) for step in self._rule.choice(self._patterns))
        return _attempt(task, steps, self._rule)

    def _seen(self, step: Step, version: int) -> Step:
        screenshot = _screenshot(f"{self._rule.getrandbits(256):064x}")
        return replace(step, screenshot=screenshot, version=version, version_sha256=f"{version:064x}")


def _attempt(task: Task, steps: tuple[Step, ...], rule: random.Random) -> Trajectory:
    return Trajectory(
        task,
        uuid.UUID(int=rule.getrandbits(128)).hex,
        "worker-0",
        "127.0.0.1:20000",
        steps,
        None,
        rule.choice((Outcome.SUCCESS, Outcome.FAILURE)),
        "ground-truth",
        "",
        False,
        1_700_000_000_000,
        1_700_000_009_000,
    )


def _screenshot(name: str) -> ObjectRef:
    return ObjectRef(f"screenshots/2026-01-01/{name}.png", name, 3000)


def _step(name: str, rule: random.Random) -> Step:
    return Step(
        _screenshot(name),
        tuple(rule.choices(range(3, 150), k=20)),
        (6, rule.randrange(16, 24), rule.randrange(24, 40), 1),
        Action(ActionKind.TAP, touch=Point(rule.random(), rule.random())),
        '"action_type": "DUAL_POINT"' * 3,
        -rule.random(),
        7,
        name,
        1_700_000_000_000,
        30.0,
        4.0,
        20.0,
        5.0,
    )
