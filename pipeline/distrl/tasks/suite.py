"""Suites: an endless, deterministic list of tasks for each split and seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from distrl.errors import ConfigError
from distrl.phone.state import chance
from distrl.phone.words import RANKS, SITES
from distrl.tasks.entities import dealt, held_out_pairs
from distrl.types import Split, Task

__all__ = ["EVALUATION_SEED", "Suite", "held_out_pairs", "suite_named", "suites"]

MAX_STEPS: Final = 14
EVALUATION_SEED: Final = 7_919
"""Of every evaluation task, in every run: success is only comparable on the same tasks."""


class Suite(Protocol):
    """name: what feeder.suite says, or the files of a list. families: kinds of tasks, in the order in which `task`
    takes turns; a list has one entry, whatever the families of its tasks.
    """

    @property
    def name(self) -> str: ...
    @property
    def families(self) -> tuple[str, ...]: ...
    def task(self, index: int, seed: int, split: Split) -> Task:
        """Task number `index` of a split under a seed: always the same; of a suite with several families, it is of
        families[index mod their number].
        """
        ...


Params = dict[str, str]
Setup = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Family:
    """phrases: templates of instructions. draw: parameters, and how the phone must look, for a split."""

    name: str
    phrases: tuple[str, ...]
    draw: Callable[[random.Random, Split], tuple[Params, Setup]]


def _entity(rng: random.Random, kind: str, split: Split) -> str:
    return " ".join(rng.choice(dealt(kind)[split]))


def _toggle(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    name, goal = _entity(rng, "switch", split), rng.choice(("on", "off"))
    return {"switch": name, "goal": goal}, {"settings": {"show": name, "on": goal == "off"}}


def _item(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    return {"item": _entity(rng, "item", split)}, {}


def _result(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    return {"item": _entity(rng, "item", split), "rank": rng.choice(RANKS)}, {}


def _shop(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    return {"item": _entity(rng, "item", split), "site": rng.choice(SITES)}, {}


def _alarm(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    return {"time": _entity(rng, "time", split)}, {}


def _message(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    contact = _entity(rng, "contact", split)
    return {"contact": contact, "item": _entity(rng, "item", split)}, {"messages": {"contact": contact}}


FAMILIES: Final = (
    Family("toggle", ("in settings turn {goal} {switch}", "open settings and switch {switch} {goal}"), _toggle),
    Family("search", ("open browser and search for {item}", "in browser look up {item}"), _item),
    Family(
        "result",
        ("in browser search for {item} and open result {rank}", "open browser and find result {rank} for {item}"),
        _result,
    ),
    Family("alarm", ("in clock set an alarm for {time}", "open clock and wake me at {time}"), _alarm),
    Family("shop", ("open shop and add {item} to cart at {site}", "in shop buy {item} from {site}"), _shop),
    Family(
        "message", ("in messages tell {contact} {item}", "open messages and message {contact} saying {item}"), _message
    ),
    Family("note", ("open notes and write a note saying {item}", "in notes make a new note {item}"), _item),
)
"""The instructions name the app, as AndroidWorld's do."""


@dataclass(frozen=True, slots=True)
class HomeSuite:
    """Seven families over the apps of the simulated phone, 3 to 8 steps of a perfect hand (MAX_STEPS allowed)."""

    name: str = "home"

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(family.name for family in FAMILIES)

    def task(self, index: int, seed: int, split: Split) -> Task:
        family = FAMILIES[index % len(FAMILIES)]
        rng = chance(self.name, split.value, seed, index)
        params, setup = family.draw(rng, split)
        return Task(
            task_id=f"{self.name}-{split.value}-{seed}-{index:06d}",
            suite=self.name,
            family=family.name,
            split=split,
            instruction=rng.choice(family.phrases).format(**params),
            max_steps=MAX_STEPS,
            phone_seed=rng.randrange(2**31),
            params=params,
            setup=json.dumps(setup, sort_keys=True),
        )


def suites() -> Mapping[str, Suite]:
    """Every suite by name."""
    return MappingProxyType({"home": HomeSuite()})


def suite_named(name: str) -> Suite:
    """The suite that feeder.suite names. Raises ConfigError where there is none of that name."""
    known = suites()
    if name not in known:
        raise ConfigError("feeder.suite", f"no suite '{name}'", f"one of: {', '.join(sorted(known))}")
    return known[name]
