"""Families: kinds of tasks, each with its instructions, its check and its script."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from simphone.machine import fresh
from simphone.state import State

from distrl.tasks.conditions import Unmets
from distrl.tasks.entity_pool import EntityPool
from distrl.tasks.persistent_state import Kept, differences, kept
from distrl.types import Action, Split, Task

Params = dict[str, str]
Setup = dict[str, dict[str, Any]]
Of = Mapping[str, str]
"""The parameters of a task."""


@dataclass(frozen=True, slots=True)
class TaskFamily:
    """One kind of task.

    app: the one to be opened. phrases: templates of instructions, filled in from the parameters. draw: random
    parameters, and the phone's setup, for a split. unmet: the conditions of the task that the phone's state does not
    meet; in every suite but `home` also each unwanted change. step: the script's next action on a phone whose `app` is
    open and where nothing is in front, while the task is not done. about: the entity pools that parameters are drawn
    from, by parameter. types: the parameters that have to be typed. answers: the button that the script taps in an
    app's dialog, by dialog; it leaves other dialogs open. fills: templates that give the typed parameters from the
    others. choices: all values of a parameter, of every split; any text if it is missing.
    """

    name: str
    app: str
    phrases: tuple[str, ...]
    draw: Callable[[random.Random, Split], tuple[Params, Setup]]
    unmet: Callable[[State, Task], Unmets]
    step: Callable[[State, Of], Action]
    about: Mapping[str, EntityPool] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)
    fills: Mapping[str, str] = field(default_factory=dict)
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def filled(self, said: Of) -> Params:
        """The parameters read from a phrase, and those derived from them: the typed ones, in lower case."""
        return {**said, **{key: template.format(**said).lower() for key, template in self.fills.items()}}


NONE: Final[Mapping[str, str]] = {}


def no_setup(params: Params) -> Setup:
    return {}


def anywhere(now: State, params: Of) -> Unmets:
    return ()


def nothing(start: State, params: Of) -> Kept:
    return {}


def no_other(start: State, params: Of) -> Iterable[Kept]:
    return ()


def family(
    name: str,
    app: str,
    phrases: tuple[str, ...],
    about: Mapping[str, EntityPool | tuple[str, ...]],
    step: Callable[[State, Of], Action],
    *,
    types: Mapping[str, str] = NONE,
    setup: Callable[[Params], Setup] = no_setup,
    shows: Callable[[State, Of], Unmets] = anywhere,
    changes: Callable[[State, Of], Kept] = nothing,
    or_changes: Callable[[State, Of], Iterable[Kept]] = no_other,
    answers: Mapping[str, str] = NONE,
) -> TaskFamily:
    """A family whose tasks are done when the phone `shows` the goal, and its persistent state is that of the start but
    for `changes`, or for one of `or_changes`, which are as good. shows: returns what it does not show.

    about: the source of each parameter, an entity pool or a list for all splits; a task's parameters are distinct.
    types: the parameters that are typed, as templates of the others; lower case, as a policy types.
    """

    def draw(rng: random.Random, split: Split) -> tuple[Params, Setup]:
        params: Params = {}
        for key, source in about.items():
            entities = source.by_split[split] if isinstance(source, EntityPool) else source
            params[key] = rng.choice([entity for entity in entities if entity not in params.values()])
        params |= {key: template.format(**params).lower() for key, template in types.items()}
        return params, setup(params)

    def unmet(now: State, task: Task) -> Unmets:
        start, of = begun(task.phone_seed, task.setup), task.params
        before, found = kept(start), kept(now)
        ways = (differences(before, each, found) for each in (changes(start, of), *or_changes(start, of)))
        return (*shows(now, of), *min(ways, key=len))

    pools = {key: source for key, source in about.items() if isinstance(source, EntityPool)}
    choices = {key: source.entities if isinstance(source, EntityPool) else source for key, source in about.items()}
    return TaskFamily(name, app, phrases, draw, unmet, step, pools, tuple(types), answers, types, choices)


@lru_cache(maxsize=64)
def begun(phone_seed: int, setup: str) -> State:
    """A phone in a task's initial state."""
    return fresh(phone_seed, json.loads(setup), 0.0)
