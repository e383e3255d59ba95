"""Tasks without a success in many attempts, which may be impossible. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from distrl.tasks.row import EPISODE
from distrl.tasks.suite import family_of
from distrl.types import Outcome, Split, Task

MIN_ATTEMPTS: Final = 20
"""Judged attempts without a success before a task is reported. A policy that does a task one time in seven fails this
often in a row with a probability of 0.046."""


@dataclass(frozen=True, slots=True)
class Unsolved:
    """A row of a list, or a family of a built-in suite, without a success. attempts: those that were judged.

    instruction: of the row; "" for a family, where `split` is None, since its attempts of all splits count together.
    """

    suite: str
    family: str
    split: Split | None
    instruction: str
    attempts: int


@dataclass(slots=True)
class Attempts:
    """Counts attempts by row or family. Rows that ask the same count together, over all rounds of the list."""

    _failed: dict[bytes, Unsolved | None] = field(default_factory=dict)
    """By `_key`; None once there was a success."""

    def add(self, task: Task, outcome: Outcome) -> None:
        """Count one attempt, unless it was not judged or was interrupted."""
        if not outcome.is_known:
            return
        key = _key(task)
        known = self._failed.get(key, _named(task))
        if known is None or outcome is Outcome.SUCCESS:
            self._failed[key] = None
        else:
            self._failed[key] = replace(known, attempts=known.attempts + 1)

    def unsolved(self) -> tuple[Unsolved, ...]:
        """The tasks with at least MIN_ATTEMPTS attempts and no success; most attempts first."""
        found = [each for each in self._failed.values() if each is not None and each.attempts >= MIN_ATTEMPTS]
        return tuple(sorted(found, key=lambda each: (-each.attempts, each.suite, each.family, each.instruction)))


def unsolved(attempts: Iterable[tuple[Task, Outcome]]) -> tuple[Unsolved, ...]:
    """The tasks without a success among all attempts of a run."""
    counted = Attempts()
    for task, outcome in attempts:
        counted.add(task, outcome)
    return counted.unsolved()


def _named(task: Task) -> Unsolved:
    if family_of(task) is not None:
        return Unsolved(task.suite, task.family, None, "", 0)
    return Unsolved(task.suite, task.family, task.split, task.instruction, 0)


def _key(task: Task) -> bytes:
    """The identity of what a task's row asks, like `Row.asked`. A short digest, as a list may have 100,000 rows, and a
    run stores one for each: two of them are equal with a probability of 3e-10."""
    said: list[object] = [task.suite, task.family]
    if family_of(task) is None:
        params = sorted(each for each in task.params.items() if each[0] != EPISODE)
        said += [task.split.value, task.instruction, task.max_steps, params, task.setup]
    return hashlib.blake2b(json.dumps(said).encode(), digest_size=8).digest()
