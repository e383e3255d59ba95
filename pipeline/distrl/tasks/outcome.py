"""Whether a task was done, and what is missing: ground truth, only from the phone's own state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simphone.state import State

from distrl.tasks.check import Check, parse_check, unmet_of
from distrl.tasks.conditions import Unmets, nothing_in_front
from distrl.tasks.final_state import final_state
from distrl.tasks.suite import family_of, suites
from distrl.types import Task

CHECK: Final = "check"
"""The task parameter with its own check as JSON, as records have no other field for it."""


@dataclass(frozen=True, slots=True)
class StateCheck:
    """What a phone's state at the end says of a task, as records keep it."""

    unmet: Unmets
    final_state: str

    @property
    def done(self) -> bool:
        return not self.unmet


def checked(task: Task, state: Mapping[str, Any]) -> StateCheck | None:
    """What `state` (the JSON of the phone) says of `task`. None if it has no valid check: then a judge has to decide.

    A task of a built-in suite is checked by its family, any other by its own check.
    """
    now = State.from_json(state)
    unmet = unmet_by(task, now)
    return None if unmet is None else StateCheck(unmet, final_state(task, now))


def succeeded(task: Task, state: Mapping[str, Any]) -> bool | None:
    """Whether the JSON of a phone fulfils `task`; None as in `checked`.

    A task of a built-in suite but `home` also fails by an unwanted change. `home` and a check of its own look only at
    the values that they name.
    """
    return done(task, State.from_json(state))


def done(task: Task, now: State) -> bool | None:
    """The same of the state itself."""
    unmet = unmet_by(task, now)
    return None if unmet is None else not unmet


def unmet_by(task: Task, now: State) -> Unmets | None:
    """The conditions of `task` that `now` does not meet; None as in `checked`."""
    if task.suite not in suites():
        check = _own_check(task)
        return None if check is None else unmet_of(check, now)
    family = family_of(task)
    return None if family is None else (*nothing_in_front(now), *family.unmet(now, task))


def _own_check(task: Task) -> Check | None:
    """Records are untrusted: an invalid check counts as none."""
    try:
        return parse_check(json.loads(task.params[CHECK]))
    except (KeyError, ValueError, RecursionError):
        return None
