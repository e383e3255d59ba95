"""Scripts that can see the phone's state: one that does every task, and one that errs, for demonstrations."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from distrl.phone.element import HEIGHT, WIDTH, Element
from distrl.phone.machine import widgets
from distrl.phone.state import ADVERT, HOME, State, words_of
from distrl.tasks.entities import Pair, dealt
from distrl.tasks.outcome import succeeded
from distrl.types import Action, ActionKind, Point, Split, Task

COLUMNS, ROWS = 8, 16
"""The grid that policies tap on; a script taps the middle of its cells, so that its taps can be written as tokens."""

BACK: Final = Action(ActionKind.BACK)
ENTER: Final = Action(ActionKind.ENTER)
COMPLETE: Final = Action(ActionKind.COMPLETE)
SWIPES: Final = {
    "up": (Point(0.5, 0.8), Point(0.5, 0.2)),
    "down": (Point(0.5, 0.2), Point(0.5, 0.8)),
    "left": (Point(0.8, 0.5), Point(0.2, 0.5)),
    "right": (Point(0.2, 0.5), Point(0.8, 0.5)),
}

APP_OF: Final = {
    "toggle": "settings",
    "search": "browser",
    "result": "browser",
    "alarm": "clock",
    "shop": "shop",
    "message": "messages",
    "note": "notes",
}


def oracle(task: Task, state: Mapping[str, Any]) -> Action:
    """The next action of a perfect hand, from the phone's true state; mends what went wrong before."""
    now, app = State.from_json(state), APP_OF[task.family]
    if now.dialog:
        return tap(now, "close")
    if now.screen == ADVERT:
        return BACK
    if succeeded(task, state):
        return COMPLETE
    if now.screen == HOME:
        return tap(now, app)
    if now.app != app:
        return Action(ActionKind.HOME)
    return STEPS[task.family](now, task.params)


def tap(now: State, target: str) -> Action:
    """A tap on the middle of the widget with this target; BACK where the screen has none."""
    found = next((element for element in widgets(now) if element.target == target), None)
    return BACK if found is None else Action(ActionKind.TAP, touch=cell_centre(found))


def cell_centre(element: Element) -> Point:
    """The middle of the grid cell that holds the widget's middle."""
    left, top, right, bottom = element.box
    column, row = (left + right) * COLUMNS // (2 * WIDTH), (top + bottom) * ROWS // (2 * HEIGHT)
    return Point((min(column, COLUMNS - 1) + 0.5) / COLUMNS, (min(row, ROWS - 1) + 0.5) / ROWS)


def swipe(direction: str) -> Action:
    touch, lift = SWIPES[direction]
    return Action(ActionKind.SWIPE, touch=touch, lift=lift)


def _write(now: State, text: str, send: str = "") -> Action:
    """Have `text` in the field of this screen, and send it: by the key named `send`, else by ENTER."""
    if not now.focused:
        return tap(now, "field")
    if now.typed != text:
        return Action(ActionKind.TYPE, text=text)
    return tap(now, send) if send else ENTER


def _toggle(now: State, params: Mapping[str, str]) -> Action:
    shown, page = words_of(now.of("settings")["shown"]), now.of("settings")["page"]
    wanted = shown.index(params["switch"]) // 4
    return tap(now, params["switch"]) if wanted == page else swipe("up" if wanted else "down")


def _search(now: State, params: Mapping[str, str]) -> Action:
    if now.screen == "browser/page":
        return BACK
    return tap(now, "field") if now.screen == "browser/results" else _write(now, params["item"])


def _result(now: State, params: Mapping[str, str]) -> Action:
    if now.screen == "browser/results" and now.of("browser")["query"] == params["item"]:
        return tap(now, params["rank"])
    return _search(now, params)


def _alarm(now: State, params: Mapping[str, str]) -> Action:
    if now.screen != "clock/alarms":
        return tap(now, "alarm")
    wrong = [time for time in words_of(now.of("clock")["alarms"]) if time != params["time"]]
    return tap(now, wrong[0] if wrong else params["time"])


def _shop(now: State, params: Mapping[str, str]) -> Action:
    data, colour = now.of("shop"), params["item"].split()[0]
    if now.screen == "shop/sites":
        return tap(now, params["site"])
    if data["site"] != params["site"]:
        return BACK
    match now.screen:
        case "shop/home":
            return _write(now, params["item"])
        case "shop/results" if data["query"] == params["item"]:
            return tap(now, colour)
        case "shop/product" if (data["query"], data["colour"]) == (params["item"], colour):
            return tap(now, "cart")
    return BACK


def _message(now: State, params: Mapping[str, str]) -> Action:
    if now.screen == "messages/list":
        return tap(now, params["contact"])
    return _write(now, params["item"], "send") if now.of("messages")["with"] == params["contact"] else BACK


def _note(now: State, params: Mapping[str, str]) -> Action:
    return tap(now, "new") if now.screen == "notes/list" else _write(now, params["item"], "save")


STEPS: Final[dict[str, Callable[[State, Mapping[str, str]], Action]]] = {
    "toggle": _toggle,
    "search": _search,
    "result": _result,
    "alarm": _alarm,
    "shop": _shop,
    "message": _message,
    "note": _note,
}


class ImperfectScript:
    """The hand of the warm-up demonstrations: the oracle, but `random_share` of its actions are random ones and
    `stop_share` say COMPLETE too early. Equal seeds and states give equal actions.
    """

    def __init__(self, seed: int, random_share: float = 0.10, stop_share: float = 0.04) -> None:
        self._rng = random.Random(seed)
        self._random_share, self._stop_share = random_share, stop_share

    def act(self, task: Task, state: Mapping[str, Any]) -> tuple[Action, float]:
        """The next action, and log μ(action) in nats."""
        right = oracle(task, state)
        roll = self._rng.random()
        if roll < self._random_share:
            action = random_action(self._rng)
        else:
            action = COMPLETE if roll < self._random_share + self._stop_share else right
        likelihood = (
            self._random_share * random_likelihood(action)
            + self._stop_share * (action == COMPLETE)
            + (1 - self._random_share - self._stop_share) * (action == right)
        )
        return action, math.log(likelihood)


def random_action(rng: random.Random) -> Action:
    """Mostly a tap anywhere, sometimes a swipe, a key, or an item of the training split typed."""
    kind = rng.choices(tuple(RANDOM_SHARES), tuple(RANDOM_SHARES.values()))[0]
    match kind:
        case ActionKind.TAP:
            return Action(kind, touch=Point((rng.randrange(8) + 0.5) / COLUMNS, (rng.randrange(16) + 0.5) / ROWS))
        case ActionKind.SWIPE:
            return swipe(rng.choice(tuple(SWIPES)))
        case ActionKind.TYPE:
            return Action(kind, text=" ".join(rng.choice(_typed())))
    return Action(kind)


def _typed() -> tuple[Pair, ...]:
    """What a random hand types: demonstrations must not name what the evaluation holds out."""
    return dealt("item")[Split.TRAIN]


RANDOM_SHARES: Final = {
    ActionKind.TAP: 0.6,
    ActionKind.SWIPE: 0.1,
    ActionKind.TYPE: 0.06,
    ActionKind.BACK: 0.12,
    ActionKind.HOME: 0.06,
    ActionKind.ENTER: 0.06,
}
OF_A_KIND: Final = {
    ActionKind.TAP: COLUMNS * ROWS,
    ActionKind.SWIPE: len(SWIPES),
    ActionKind.TYPE: len(_typed()),
}
"""How many different actions of a kind the random hand draws from, each equally often."""


def random_likelihood(action: Action) -> float:
    """The probability that `random_action` draws an action that it can draw; 0 for COMPLETE."""
    return RANDOM_SHARES.get(action.kind, 0.0) / OF_A_KIND.get(action.kind, 1)
