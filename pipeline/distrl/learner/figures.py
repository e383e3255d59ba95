"""Records what the learner reports after each update, for as long as the run's log lasts (docs/adr/0030).

Heartbeats say the same to those who look on, and are deleted after a day.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from distrl.broker.producer import RecordProducer
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import Config
from distrl.learner.beside import BesideLog
from distrl.types import Figures, Update

TOPIC: Final = "figures"
MOST_WAITING: Final = 1_000
"""Records that a broker has not acknowledged, about a megabyte; further ones are left out."""
SETTLE_S: Final = 5.0
"""Longest wait before a checkpoint. Updates that it covers are not redone: a kill would lose figures on their way."""


class FiguresSender:
    """Publishes the figures of a learner's updates. One thread."""

    def __init__(self, config: Config, producer: RecordProducer, clock: Clock = SYSTEM_CLOCK) -> None:
        self._topic, self._clock = BesideLog(config, producer, TOPIC, MOST_WAITING), clock

    def send(self, update: Update, metrics: Mapping[str, float]) -> None:
        """Queue what was reported after `update`, named as in telemetry.metrics, or leave it out."""
        self._topic.send(str(update.u), lambda: figures_of(update, self._clock.now_ms(), metrics))

    def settle(self) -> None:
        """Wait until the figures that were sent are in the log, at most SETTLE_S: to be called before a checkpoint."""
        self._topic.settle(SETTLE_S)


def figures_of(update: Update, at: int, metrics: Mapping[str, float]) -> Figures:
    """The record of what was reported at `at` after `update`."""
    of_update = {name: value for name, value in metrics.items() if name != "update"}
    return Figures(update.u, update.journalled_at, at, of_update)
