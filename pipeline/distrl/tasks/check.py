"""The checks of a list's tasks: conditions on the state of a simulated phone, as untrusted JSON. Pure.

    check     = condition | [condition, …]      all of them have to hold
    condition = {"screen": "browser/results"}   the screen that is in front
              | {"app": "settings", "path": "on", "contains": "wifi sync"}

`path` is a value of the app's state (`remembered`): a list of texts, a text, a number, or true or false. `contains` and
`lacks` take a text: an entry of a list, or a part of a text. `equals` takes the whole value; the order of a list does
not count.
As for every task, a pop-up or an advert in front means failure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from simphone.machine import fresh
from simphone.screens import refuse_unknown
from simphone.state import AppData, State, Value

from distrl.tasks.conditions import Unmets, nothing_in_front, unmet

MAX_CONDITIONS: Final = 16
MAX_TEXT: Final = 200
"""Longest text of a condition: that of a phone's text field."""
OPERATIONS: Final = ("contains", "lacks", "equals")
FORM: Final = '{"app": …, "path": …, "contains" | "lacks" | "equals": …} or {"screen": …}'


@dataclass(frozen=True, slots=True)
class Condition:
    """app "" is the phone itself, whose only path is `screen`."""

    app: str
    path: str
    operation: str
    value: Value


Check = tuple[Condition, ...]


@cache
def remembered() -> Mapping[str, AppData]:
    """Each app's state after some reset, for the names and types of its values."""
    return fresh(0, {}, 0.0).data


def parse_check(given: Any) -> Check:
    """The conditions of a parsed JSON value. Raises ValueError with what is wrong with it."""
    stated = given if isinstance(given, list) else [given]
    if not 1 <= len(stated) <= MAX_CONDITIONS:
        raise ValueError(f"a check has 1 to {MAX_CONDITIONS} conditions, not {len(stated)}")
    return tuple(_condition(each) for each in stated)


def holds(check: Check, now: State) -> bool:
    """Whether all conditions hold, with nothing in front."""
    return not unmet_of(check, now)


def unmet_of(check: Check, now: State) -> Unmets:
    """What does not hold. Loading is no fault: a check may be about what was done before."""
    in_front = [each for each in nothing_in_front(now) if each.path != "loading"]
    wrong = [each for each in check if not _is_so(each, now)]
    return (
        *in_front,
        *(unmet(f"{it.app}.{it.path}" if it.app else it.path, it.operation, it.value, _found(it, now)) for it in wrong),
    )


def _condition(given: Any) -> Condition:
    if not isinstance(given, Mapping):
        raise ValueError(f"a condition is an object like {FORM}")
    if set(given) == {"screen"}:
        screen = _text(given["screen"], "screen")
        refuse_unknown(screen)
        return Condition("", "screen", "equals", screen)
    asked = [name for name in OPERATIONS if name in given]
    if len(asked) != 1 or set(given) != {"app", "path", asked[0]}:
        raise ValueError(f"a condition has exactly the fields of {FORM}")
    app, path, operation = _text(given["app"], "app"), _text(given["path"], "path"), asked[0]
    apps = remembered()
    if app not in apps:
        raise ValueError(f"no app {app!r}: a simulated phone has {', '.join(apps)}")
    if path not in apps[app]:
        raise ValueError(f"{app} remembers no {path!r}: it has {', '.join(apps[app])}")
    return Condition(app, path, operation, _wanted(operation, given[operation], apps[app][path]))


def _wanted(operation: str, value: Any, kind: Value) -> Value:
    """The value to compare with. kind: of the phone's value."""
    if isinstance(kind, bool):
        if operation != "equals" or not isinstance(value, bool):
            raise ValueError("yes or no is compared with `equals` and true or false")
        return value
    if isinstance(kind, int):
        if operation != "equals" or isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("a number is compared with `equals` and a whole number")
        return value
    if operation != "equals" or isinstance(kind, str):
        return _text(value, operation)
    if not isinstance(value, list) or len(value) > MAX_TEXT:
        raise ValueError("`equals` of a list takes a list of texts")
    return _in_order(_text(each, operation) for each in value)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"`{name}` takes a text of at most {MAX_TEXT} characters")
    return value


def _found(condition: Condition, now: State) -> Any:
    return now.data.get(condition.app, {}).get(condition.path) if condition.app else now.screen


def _is_so(condition: Condition, now: State) -> bool:
    found = _found(condition, now)
    match condition.operation:
        case "contains":
            return isinstance(found, str | tuple) and condition.value in found
        case "lacks":
            return isinstance(found, str | tuple) and condition.value not in found
    return bool((_in_order(found) if isinstance(found, tuple) else found) == condition.value)


def _in_order(texts: Iterable[str]) -> tuple[str, ...]:
    """As texts, so that values of any type can be compared."""
    return tuple(sorted(texts, key=repr))
