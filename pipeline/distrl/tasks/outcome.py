"""Whether a task was done: ground truth, from the phone's own state and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from distrl.phone.machine import fresh
from distrl.phone.state import ADVERT, State, words_of
from distrl.tasks.check import Check, holds, parse_check
from distrl.tasks.suite import suites
from distrl.types import Task

CHECK: Final = "check"
"""The parameter of a task that holds its own check, as JSON: records have no other place for it."""


def succeeded(task: Task, state: Mapping[str, Any]) -> bool | None:
    """Whether `state` (the JSON of the phone) is what `task` asks for, with nothing else changed that should not be.

    A task of a built-in suite is checked by its family, any other by its own check. None where it has none that can be
    read: the phone's state cannot tell, and a judge has to.
    """
    now = State.from_json(state)
    if task.suite not in suites():
        check = _own_check(task)
        return None if check is None else holds(check, now)
    if task.family not in CHECKS:
        return None
    return not now.dialog and now.screen != ADVERT and CHECKS[task.family](now, task)


def _own_check(task: Task) -> Check | None:
    """A record may hold anything: what is no check is none."""
    try:
        return parse_check(json.loads(task.params[CHECK]))
    except (KeyError, ValueError, RecursionError):
        return None


def _toggle(now: State, task: Task) -> bool:
    start = fresh(
        task.phone_seed, {"settings": {"show": task.params["switch"], "on": task.params["goal"] == "off"}}, 0.0
    )
    before = set(words_of(start.of("settings")["on"]))
    return set(words_of(now.of("settings")["on"])) == before ^ {task.params["switch"]}


def _search(now: State, task: Task) -> bool:
    return now.screen == "browser/results" and now.of("browser")["query"] == task.params["item"]


def _result(now: State, task: Task) -> bool:
    data = now.of("browser")
    return now.screen == "browser/page" and (data["query"], data["result"]) == (
        task.params["item"],
        task.params["rank"],
    )


def _alarm(now: State, task: Task) -> bool:
    return now.of("clock")["alarms"] == (task.params["time"],)


def _shop(now: State, task: Task) -> bool:
    return now.of("shop")["cart"] == (f"{task.params['site']} {task.params['item']}",)


def _message(now: State, task: Task) -> bool:
    return now.of("messages")["sent"] == (f"{task.params['contact']}: {task.params['item']}",)


def _note(now: State, task: Task) -> bool:
    return now.of("notes")["notes"] == (task.params["item"],)


CHECKS: Final[dict[str, Callable[[State, Task], bool]]] = {
    "toggle": _toggle,
    "search": _search,
    "result": _result,
    "alarm": _alarm,
    "shop": _shop,
    "message": _message,
    "note": _note,
}
