"""Scripts that see the phone's state: one that does every task, and one with random mistakes, for demonstrations."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from simphone.machine import LAUNCHER
from simphone.popups import POPUPS
from simphone.state import ADVERT, State, words_of

from distrl.tasks.family import Of, TaskFamily
from distrl.tasks.outcome import done
from distrl.tasks.scripted_actions import BACK, COLUMNS, COMPLETE, GO_HOME, ROWS, SWIPES, WAIT, swipe, tap, tap_if_there
from distrl.tasks.suite import family_of, suites
from distrl.types import Action, ActionKind, Point, Task


def oracle(task: Task, state: Mapping[str, Any]) -> Action:
    """The oracle's next action, from the phone's true state as JSON; it corrects earlier mistakes.

    Raises KeyError for a task that is not of a built-in suite.
    """
    return next_action(task, State.from_json(state))


def next_action(task: Task, now: State) -> Action:
    """The same from the state itself."""
    family = family_of(task)
    if family is None:
        raise KeyError(f"no script for {task.suite} {task.family}")
    return as_family(family, task.params, task, now)


def as_family(family: TaskFamily, params: Of, task: Task, now: State) -> Action:
    """The next action of the script of `family` with `params`, until `task` is done."""
    if now.dialog in POPUPS:
        return tap(now, "close")
    if now.dialog:
        return tap(now, family.answers[now.dialog]) if now.dialog in family.answers else GO_HOME
    if now.screen == ADVERT:
        return BACK
    if done(task, now):
        return COMPLETE
    if now.app == LAUNCHER:
        return _open(now, family.app)
    if now.app != family.app:
        return GO_HOME
    return WAIT if now.loading else family.step(now, params)


def _open(now: State, app: str) -> Action:
    """Touch the icon of an app: those of the first page are behind HOME, the others behind a swipe."""
    if found := tap_if_there(now, app):
        return found
    return GO_HOME if app in words_of(now.of(LAUNCHER)["order"]) else swipe("left")


class ImperfectScript:
    """The policy of the warm-up demonstrations: the oracle, but `random_share` of its actions are random and
    `stop_share` are a COMPLETE too early. Equal seeds and states give equal actions.
    """

    def __init__(self, seed: int, random_share: float = 0.10, stop_share: float = 0.04) -> None:
        self._rng = random.Random(seed)
        self._random_share, self._stop_share = random_share, stop_share

    def act(self, task: Task, state: Mapping[str, Any]) -> tuple[Action, float]:
        """The next action, and log μ(action) in nats."""
        right, typed = oracle(task, state), suites()[task.suite].typed
        roll = self._rng.random()
        if roll < self._random_share:
            action = random_action(self._rng, typed)
        else:
            action = COMPLETE if roll < self._random_share + self._stop_share else right
        likelihood = (
            self._random_share * random_likelihood(action, len(typed))
            + self._stop_share * (action == COMPLETE)
            + (1 - self._random_share - self._stop_share) * (action == right)
        )
        return action, math.log(likelihood)


def random_action(rng: random.Random, typed: Sequence[str]) -> Action:
    """Mostly a tap anywhere, sometimes a swipe, a key, or typing one of `typed`: texts of training tasks only, since
    demonstrations must not name held-out entities.
    """
    kind = rng.choices(tuple(RANDOM_SHARES), tuple(RANDOM_SHARES.values()))[0]
    match kind:
        case ActionKind.TAP:
            return Action(kind, touch=Point((rng.randrange(8) + 0.5) / COLUMNS, (rng.randrange(16) + 0.5) / ROWS))
        case ActionKind.SWIPE:
            return swipe(rng.choice(tuple(SWIPES)))
        case ActionKind.TYPE:
            return Action(kind, text=rng.choice(typed))
    return Action(kind)


RANDOM_SHARES: Final = {
    ActionKind.TAP: 0.6,
    ActionKind.SWIPE: 0.1,
    ActionKind.TYPE: 0.06,
    ActionKind.BACK: 0.12,
    ActionKind.HOME: 0.06,
    ActionKind.ENTER: 0.06,
}


def random_likelihood(action: Action, texts: int) -> float:
    """The probability that `random_action` with that many texts draws an action that it can draw; 0 for COMPLETE."""
    of_a_kind = {ActionKind.TAP: COLUMNS * ROWS, ActionKind.SWIPE: len(SWIPES), ActionKind.TYPE: texts}
    return RANDOM_SHARES.get(action.kind, 0.0) / of_a_kind.get(action.kind, 1)
