"""Whether a task was done: ground truth, from the phone's own state and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from distrl.phone.machine import fresh
from distrl.phone.state import ADVERT, State, words_of
from distrl.types import Task


def succeeded(task: Task, state: Mapping[str, Any]) -> bool:
    """Whether `state` (the JSON of the phone) is what `task` asks for, with nothing else changed that should not be.

    Raises KeyError for a family that no check knows.
    """
    now = State.from_json(state)
    return not now.dialog and now.screen != ADVERT and CHECKS[task.family](now, task)


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
