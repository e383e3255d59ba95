"""A run that really learned, on the session's servers: records of noise in its topics, and the real learner."""

from __future__ import annotations

import threading
from typing import Any

from distrl.broker.producer import RecordProducer
from distrl.config import Config
from distrl.learner.run import run_learner
from distrl.store.objects import open_store
from distrl.types import Version
from learner.world import Screens, trajectory

ACKNOWLEDGED_S = 300.0


def publish(config: Config, seeds: range, topic: str) -> None:
    """A record for each seed, with its screenshots in the store."""
    store, screens = open_store(config.store), Screens()
    with RecordProducer(config, "test") as producer:
        queued = []
        for seed in seeds:
            made = trajectory(screens, seed, expert=topic == "demonstrations", store=store)
            queued.append(producer.publish(topic, made.task_id, made))
        for each in queued:
            each.result(ACKNOWLEDGED_S)


def learn(config: Config, updates: int) -> None:
    """The real learner until so many updates are folded; it saves a checkpoint when it stops."""
    stop = threading.Event()

    def on_update(metrics: Any, version: Version | None) -> None:
        if metrics["update"] >= updates:
            stop.set()

    run_learner(config, stop, on_update)
