"""Records, for people, what each update drew from the buffer: V(s), advantage, priority and so on of each drawn step.

The learner never reads these records. Folding the same log gives them again, so they may be lost, and an update that
is redone after a restart writes the same record (docs/adr/0029).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from distrl.algorithms.protocol import DrawnSteps, Floats
from distrl.broker.producer import RecordProducer
from distrl.config import Config
from distrl.learner.beside import BesideLog
from distrl.types import DrawnStep, DrawnTrajectory, Draws, LogPosition, Update

TOPIC: Final = "draws"
COLUMNS: Final = ("value", "advantage", "td_error", "ratio", "priority")
"""The columns of `DrawnSteps`, which are the fields of `DrawnStep` in the same order."""
MOST_WAITING: Final = 8
"""Most records that the broker has not acknowledged; further ones are dropped."""


class DrawsSender:
    """Publishes the draws of a learner's updates if learner.record_draws is set. One thread."""

    def __init__(self, config: Config, producer: RecordProducer) -> None:
        self._topic = BesideLog(config, producer, TOPIC, MOST_WAITING) if config.learner.record_draws else None

    def send(self, update: Update, phase: str, drawn: DrawnSteps) -> None:
        """Queue the draws of `update`, or drop them."""
        if self._topic is not None and drawn.rows:
            self._topic.send(str(update.u), lambda: draws_of(update, phase, drawn))


def draws_of(update: Update, phase: str, drawn: DrawnSteps) -> Draws:
    """The record of what `update` drew. Of a step drawn several times, each column has the last finite value."""
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
    """`step` drawn once more; `numbers`, the columns of the later row, replace those that are known."""
    before = (getattr(step, name) for name in COLUMNS)
    now = [old if new is None else new for old, new in zip(before, numbers, strict=True)]
    return DrawnStep(step.step, step.times + 1, *now)


def _numbers(column: Floats | None, rows: int) -> list[float | None]:
    """The column as Python floats, None for a value that is not finite.

    Values are rounded to float32: as doubles they then compress to little more than 4 bytes each.
    """
    if column is None:
        return [None] * rows
    with np.errstate(over="ignore"):
        plain = column.astype(np.float32).astype(np.float64).tolist()
    return [number if math.isfinite(number) else None for number in plain]
