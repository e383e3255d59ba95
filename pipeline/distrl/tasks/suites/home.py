"""The home suite: seven families over the first apps, an endless list of tasks for each split and seed.

The shipped base model, the demo and what docs/learning.md measured belong to these very tasks: they never change.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from simphone import words
from simphone.machine import fresh
from simphone.state import State, chance, words_of
from simphone.words import RANKS, SITES

from distrl.tasks import moves
from distrl.tasks.conditions import Unmets, equals, unmet
from distrl.tasks.entities import assigned
from distrl.tasks.family import Params, Setup, TaskFamily
from distrl.tasks.scripted_actions import BACK, tap, write
from distrl.types import Action, Split, Task

MAX_STEPS: Final = 14
FIRST: Final = 2_000
"""Tasks of an endless split that represent it when its instructions are counted."""


def _entity(rng: random.Random, kind: str, split: Split) -> str:
    return " ".join(rng.choice(assigned(kind)[split]))


def _item(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    return {"item": _entity(rng, "item", split)}, {}


# toggle


def _draw_toggle(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    name, goal = _entity(rng, "switch", split), rng.choice(("on", "off"))
    return {"switch": name, "goal": goal}, {"settings": {"show": name, "on": goal == "off"}}


def _toggled(now: State, task: Task) -> Unmets:
    start = fresh(
        task.phone_seed, {"settings": {"show": task.params["switch"], "on": task.params["goal"] == "off"}}, 0.0
    )
    wanted = set(words_of(start.of("settings")["on"])) ^ {task.params["switch"]}
    found = words_of(now.of("settings")["on"])
    return () if set(found) == wanted else (unmet("settings.on", "equals", tuple(sorted(wanted)), found),)


# search, result


def _searched(now: State, task: Task) -> Unmets:
    return (*equals(now, "screen", "browser/results"), *equals(now, "browser.query", task.params["item"]))


def _draw_result(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    return {"item": _entity(rng, "item", split), "rank": rng.choice(RANKS)}, {}


def _opened(now: State, task: Task) -> Unmets:
    return (
        *equals(now, "screen", "browser/page"),
        *equals(now, "browser.query", task.params["item"]),
        *equals(now, "browser.result", task.params["rank"]),
    )


# alarm


def _draw_alarm(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    return {"time": _entity(rng, "time", split)}, {}


def _alarm_set(now: State, task: Task) -> Unmets:
    return equals(now, "clock.alarms", (task.params["time"],))


# shop


def _draw_shop(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    return {"item": _entity(rng, "item", split), "site": rng.choice(SITES)}, {}


def _bought(now: State, task: Task) -> Unmets:
    return equals(now, "shop.cart", (f"{task.params['site']} {task.params['item']}",))


def _shop(now: State, params: Mapping[str, str]) -> Action:
    data, colour = now.of("shop"), params["item"].split()[0]
    if now.screen == "shop/sites":
        return tap(now, params["site"])
    if data["site"] != params["site"]:
        return BACK
    match now.screen:
        case "shop/home":
            return write(now, params["item"])
        case "shop/results" if data["query"] == params["item"]:
            return tap(now, colour)
        case "shop/product" if (data["query"], data["colour"]) == (params["item"], colour):
            return tap(now, "cart")
    return BACK


# message, note


def _draw_message(rng: random.Random, split: Split) -> tuple[Params, Setup]:
    contact = _entity(rng, "contact", split)
    return {"contact": contact, "item": _entity(rng, "item", split)}, {"messages": {"contact": contact}}


def _told(now: State, task: Task) -> Unmets:
    return equals(now, "messages.sent", (f"{task.params['contact']}: {task.params['item']}",))


def _noted(now: State, task: Task) -> Unmets:
    return equals(now, "notes.notes", (task.params["item"],))


FAMILIES: Final = (
    TaskFamily("toggle", "settings", ("in settings turn {goal} {switch}", "open settings and switch {switch} {goal}"),
           _draw_toggle, _toggled, lambda now, of: moves.toggle(now, of["switch"])),
    TaskFamily("search", "browser", ("open browser and search for {item}", "in browser look up {item}"),
           _item, _searched, lambda now, of: moves.search(now, of["item"])),
    TaskFamily("result", "browser",
           ("in browser search for {item} and open result {rank}", "open browser and find result {rank} for {item}"),
           _draw_result, _opened, lambda now, of: moves.open_result(now, of["item"], of["rank"])),
    TaskFamily("alarm", "clock", ("in clock set an alarm for {time}", "open clock and wake me at {time}"),
           _draw_alarm, _alarm_set, lambda now, of: moves.set_alarm(now, of["time"])),
    TaskFamily("shop", "shop", ("open shop and add {item} to cart at {site}", "in shop buy {item} from {site}"),
           _draw_shop, _bought, _shop),
    TaskFamily("message", "messages",
           ("in messages tell {contact} {item}", "open messages and message {contact} saying {item}"),
           _draw_message, _told, lambda now, of: moves.send(now, of["contact"], of["item"])),
    TaskFamily("note", "notes", ("open notes and write a note saying {item}", "in notes make a new note {item}"),
           _item, _noted, lambda now, of: moves.note(now, of["item"])),
)  # fmt: skip
"""The instructions name the app, as AndroidWorld's do."""


@dataclass(frozen=True, slots=True)
class HomeSuite:
    """Seven families over the apps of the simulated phone, 3 to 8 steps of the oracle (MAX_STEPS allowed)."""

    name: str = "home"
    kinds: tuple[TaskFamily, ...] = FAMILIES

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(family.name for family in self.kinds)

    @property
    def typed(self) -> tuple[str, ...]:
        return tuple(" ".join(pair) for pair in assigned("item")[Split.TRAIN])

    @property
    def texts(self) -> tuple[str, ...]:
        return words.ALL

    def size(self, split: Split) -> None:
        return None

    def said(self, split: Split) -> tuple[str, ...]:
        return tuple(self.task(index, 0, split).instruction for index in range(FIRST))

    def task(self, index: int, seed: int, split: Split) -> Task:
        family = self.kinds[index % len(self.kinds)]
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
