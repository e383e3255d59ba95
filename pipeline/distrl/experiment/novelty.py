"""How new a task is to an agent of a built-in suite. Pure.

- `instance`: its wording is that of a family the agent was trained on, about something else (another city or song);
- `template`: another family, in an app that training opens;
- `app`: in an app that no training task opens.
"""

from __future__ import annotations

from typing import Literal

from distrl.tasks.suite import BuiltIn, family_of
from distrl.types import Task

Novelty = Literal["instance", "template", "app"]


def novelty_of(task: Task, trained: BuiltIn) -> Novelty:
    """Of a task of a built-in suite; raises ValueError for another."""
    family = family_of(task)
    if family is None:
        raise ValueError(f"{task.task_id} is of no built-in suite")
    if any(set(family.phrases) & set(known.phrases) for known in trained.kinds):
        return "instance"
    return "template" if any(family.app == known.app for known in trained.kinds) else "app"
