"""The state of a phone at the end of an episode, as a record keeps it: what differs from the start. Pure.

The whole state has 2,700 characters, the difference 123 on average and 398 at most (400 episodes of all suites); the
rest follows from the task's `phone_seed` and `setup`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from simphone.machine import fresh
from simphone.state import State, Value

from distrl.tasks.conditions import MAX_TEXT
from distrl.tasks.family import begun
from distrl.text import encodable
from distrl.types import Task

MAX_CHARACTERS: Final = 4_000
"""Bounds the record. Nothing but typed text can be long; the longest values are left out first. What is in front always
has room: five values of at most MAX_TEXT characters."""
LEFT_OUT: Final = "…"


def final_state(task: Task, now: State) -> str:
    """JSON: `screen`, what is in front of it, and `data`: app -> name -> value, of what is not as at the start."""
    kept: dict[str, Any] = {"screen": _short(now.screen)}
    in_front: dict[str, Value] = {"dialog": now.dialog, "loading": now.loading, "typed": now.typed, "toast": now.toast}
    kept |= {name: _short(value) for name, value in in_front.items() if value}
    kept["data"] = data = _changed(_start(task), now)
    while len(text := _as_text(kept)) > MAX_CHARACTERS:
        app, name = max(((app, name) for app in data for name in data[app]), key=lambda at: _size(data[at[0]][at[1]]))
        if data[app][name] == LEFT_OUT:
            return _as_text({"screen": kept["screen"]})
        data[app][name] = LEFT_OUT
    return text


def _changed(start: State, now: State) -> dict[str, dict[str, Value]]:
    found = {
        app: {name: value for name, value in values.items() if start.data.get(app, {}).get(name) != value}
        for app, values in now.data.items()
    }
    return {app: values for app, values in found.items() if values}


def _start(task: Task) -> State:
    """Records are untrusted: with a setup that no phone takes, the start is that of the seed alone."""
    try:
        return begun(task.phone_seed, task.setup)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return fresh(task.phone_seed, {}, 0.0)


def _short(value: Value) -> Value:
    return value if _size(value) <= MAX_TEXT else LEFT_OUT


def _size(value: Value) -> int:
    return len(_as_text(value))


def _as_text(value: object) -> str:
    """What a phone says of itself is untrusted, and may hold what no record can."""
    return encodable(json.dumps(value, ensure_ascii=False))
