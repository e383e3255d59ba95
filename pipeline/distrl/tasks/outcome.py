"""Whether a task was done: ground truth, only from the phone's own state."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from simphone.state import ADVERT, State

from distrl.tasks.check import Check, holds, parse_check
from distrl.tasks.suite import family_of, suites
from distrl.types import Task

CHECK: Final = "check"
"""The task parameter with its own check as JSON, as records have no other field for it."""


def succeeded(task: Task, state: Mapping[str, Any]) -> bool | None:
    """Whether `state` (the JSON of the phone) fulfils `task`, with no unwanted change.

    A task of a built-in suite is checked by its family, any other by its own check. None if it has no valid check:
    then a judge has to decide.
    """
    return done(task, State.from_json(state))


def done(task: Task, now: State) -> bool | None:
    """The same of the state itself."""
    if task.suite not in suites():
        check = _own_check(task)
        return None if check is None else holds(check, now)
    family = family_of(task)
    if family is None:
        return None
    return not now.dialog and not now.loading and now.screen != ADVERT and family.done(now, task)


def _own_check(task: Task) -> Check | None:
    """Records are untrusted: an invalid check counts as none."""
    try:
        return parse_check(json.loads(task.params[CHECK]))
    except (KeyError, ValueError, RecursionError):
        return None
