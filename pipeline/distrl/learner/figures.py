"""Records the learner's metrics after each update, for as long as the run's log is retained (docs/adr/0030).

Heartbeats carry the same metrics for live views, but are deleted after a day.
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
"""Most records that the broker has not acknowledged, about a megabyte; further ones are dropped."""
SETTLE_S: Final = 5.0
"""Longest wait before a checkpoint. Updates before it are not redone, so a kill would lose unacknowledged figures."""


class FiguresSender:
    """Publishes the figures of a learner's updates. One thread."""

    def __init__(self, config: Config, producer: RecordProducer, clock: Clock = SYSTEM_CLOCK) -> None:
        self._topic, self._clock = BesideLog(config, producer, TOPIC, MOST_WAITING), clock

    def send(self, update: Update, metrics: Mapping[str, float]) -> None:
        """Queue `metrics`, reported after `update` and named as in telemetry.metrics, or drop them."""
        self._topic.send(str(update.u), lambda: figures_of(update, self._clock.now_ms(), metrics))

    def settle(self) -> None:
        """Wait until the figures that were sent are acknowledged, at most SETTLE_S. Call it before a checkpoint."""
        self._topic.settle(SETTLE_S)


def figures_of(update: Update, at: int, metrics: Mapping[str, float]) -> Figures:
    """The record of `metrics`, reported after `update` at the time `at` (ms since the epoch)."""
    of_update = {name: value for name, value in metrics.items() if name != "update"}
    return Figures(update.u, update.journalled_at, at, of_update)
