"""Records that only the browser's tests need: an episode of very many steps, and many episodes."""

from __future__ import annotations

from dataclasses import replace

import factories
from distrl.broker.producer import RecordProducer
from distrl.config import Config
from distrl.store.objects import open_store

from view.world import APART_MS, BEGAN, DONE, SWIPE, TAP, episode, screen

LONG_STEPS = 10_000
LONG_TASK = "task-of-many-steps"


def long_episode(config: Config) -> None:
    """A demonstration of LONG_STEPS steps: at 1:0 of no other, so that the trajectories keep their places."""
    store = open_store(config.store)
    shots = [screen(store, grey) for grey in (10, 120, 240)]
    steps = [
        factories.step((TAP, SWIPE, DONE)[number % 3], screenshot=shots[number % 3], version=0, at=BEGAN + number)
        for number in range(LONG_STEPS)
    ]
    made = factories.trajectory(
        factories.task(LONG_TASK, instruction="do very many things"),
        steps,
        is_expert=True,
        final_screenshot=shots[0],
        started_at=BEGAN,
    )
    with RecordProducer(config, "a-test") as producer:
        producer.publish("demonstrations", LONG_TASK, replace(made, finished_at=BEGAN + LONG_STEPS)).result(60)


def more(config: Config, first: int, count: int, topic: str = "trajectories") -> None:
    """Episodes number `first` and on, as a run that trains writes them."""
    store = open_store(config.store)
    with RecordProducer(config, "a-test") as producer:
        waiting = [
            producer.publish(topic, f"task-{number}", episode(store, number)) for number in range(first, first + count)
        ]
        for each in waiting:
            each.result(30)


def ended_at(number: int) -> int:
    """ms since the epoch at which trajectory `number` ended."""
    return BEGAN + number * APART_MS + 5_000
