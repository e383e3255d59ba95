"""Records what each update drew, for people: V(s), advantage, priority and the like of each step that was drawn.

The records follow from the log and are no part of it: the fold of the same log gives them again, so they may be lost,
and an update that is redone after a restart writes the same record (docs/adr/0029). Nothing here waits or raises.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

import numpy as np

from distrl.algorithms.protocol import DrawnSteps, Floats
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import retained
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import DrawnStep, DrawnTrajectory, Draws, LogPosition, Update

LOG = logging.getLogger("distrl.learner.draws")

TOPIC: Final = "draws"
COLUMNS: Final = ("value", "advantage", "td_error", "ratio", "priority")
"""Of `DrawnSteps` and of `DrawnStep`, in the order of its fields."""
MOST_WAITING: Final = 8
"""Records that a broker has not acknowledged; further ones are left out, so that they cannot fill the queue that the
learner's heartbeats and dead letters share."""


class DrawsSender:
    """Publishes the draws of a learner's updates. One thread."""

    def __init__(self, config: Config, producer: RecordProducer) -> None:
        """Asks the broker for the topic once: a run that was begun by earlier software may lack it."""
        self._producer = producer
        self._waiting: list[Future[LogPosition | None]] = []
        self._over = not config.learner.record_draws
        if not self._over:
            try:
                retained(config, TOPIC)
            except BrokerError as error:
                self._end(error)

    def send(self, update: Update, phase: str, drawn: DrawnSteps) -> None:
        """Queue the draws of `update`, or leave them out."""
        self._forget_acknowledged()
        if self._over or not drawn.rows or len(self._waiting) >= MOST_WAITING:
            return
        try:
            self._waiting.append(self._producer.publish(TOPIC, str(update.u), draws_of(update, phase, drawn)))
        except BrokerError as error:
            self._end(error)

    def _forget_acknowledged(self) -> None:
        done = [each for each in self._waiting if each.done()]
        self._waiting = [each for each in self._waiting if not each.done()]
        failed = next((error for each in done if (error := each.exception()) is not None), None)
        if failed is not None and not self._over:
            self._end(failed)

    def _end(self, error: BaseException) -> None:
        """As where the topic is missing, or this role may not write it: so it stays while this process runs."""
        self._over = True
        LOG.warning("what updates draw is not recorded until this learner is started again: %s", error)


def draws_of(update: Update, phase: str, drawn: DrawnSteps) -> Draws:
    """The record of what `update` drew. A step's columns are those of the last of its rows that has a number."""
    columns = [_numbers(getattr(drawn, name), len(drawn.rows)) for name in COLUMNS]
    found: dict[int, tuple[LogPosition, dict[int, DrawnStep]]] = {}  # by entry; its position takes longer to hash
    for (entry, step), *numbers in zip(drawn.rows, *columns, strict=True):
        _, steps = found.setdefault(id(entry), (entry.logged.position, {}))
        before = steps.get(step)
        steps[step] = DrawnStep(step, 1, *numbers) if before is None else _again(before, numbers)
    trajectories = [
        DrawnTrajectory(
            at.topic.rpartition(".")[2], at.partition, at.offset, tuple(steps[step] for step in sorted(steps))
        )
        for at, steps in found.values()
    ]
    trajectories.sort(key=lambda each: (each.topic, each.partition, each.offset))
    return Draws(update.u, phase, update.journalled_at, tuple(trajectories))


def _again(step: DrawnStep, numbers: Sequence[float | None]) -> DrawnStep:
    """`step` drawn once more, with the columns of a later row."""
    before = (getattr(step, name) for name in COLUMNS)
    now = [old if new is None else new for old, new in zip(before, numbers, strict=True)]
    return DrawnStep(step.step, step.times + 1, *now)


def _numbers(column: Floats | None, rows: int) -> list[float | None]:
    """In the precision of a float32, whose doubles compress to little more than its 4 bytes; None where it is none."""
    if column is None:
        return [None] * rows
    with np.errstate(over="ignore"):
        plain = column.astype(np.float32).astype(np.float64).tolist()
    return [number if math.isfinite(number) else None for number in plain]
