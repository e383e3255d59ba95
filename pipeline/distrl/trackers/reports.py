"""Which report of an update makes its point of figures: the record that lasts, else the learner's heartbeat after it.

Points come in the order of updates. So where a run has records of figures, a heartbeat waits until it is clear that its
update has none, as it has where earlier software folded it. Pure: no client, no clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final

from distrl.telemetry.metrics import METRICS
from distrl.trackers.protocol import Axis, Point
from distrl.types import Figures, Heartbeat, Update

LEARNER: Final = "learner"
NOT_OF_AN_UPDATE: Final = {"update", "ready", "progress_age_seconds"}
"""Metrics of a report that are no figures of an update."""
LOSS: Final = "_loss"
"""How the name of a loss ends."""
MOST_AHEAD: Final = 1_000
"""Most reports of each kind that wait; topics are read only some records apart."""


class LearnerReports:
    """Takes the journal and the learner's reports; `taken` gives the points."""

    def __init__(self, *, recorded: bool) -> None:
        """recorded: whether the run has the topic of figures. Without it no heartbeat waits."""
        self._recorded = recorded
        self._lines: dict[int, tuple[int, ...]] = {}
        """Update -> when it was journalled, each time."""
        self._reported = -1
        """The last update with a point."""
        self._early: list[tuple[int, Heartbeat]] = []
        """Updates and heartbeats that report them, read before their lines of the journal."""
        self._unknown: deque[Figures] = deque(maxlen=MOST_AHEAD)
        """Read before their lines, or of lines that the log lost."""
        self._waiting: dict[int, Heartbeat] = {}
        """Update -> its first heartbeat, whose figures may be on their way."""
        self._before = -1
        """The highest update that waited at the last call of `quiet`."""
        self._taken: list[Point] = []

    def taken(self) -> list[Point]:
        """The points since the last call."""
        found, self._taken = self._taken, []
        return found

    def journalled(self, line: Update) -> None:
        """line: one that makes no others void."""
        self._lines[line.u] = (*self._lines.get(line.u, ()), line.journalled_at)
        for u, beat in self._early:
            if u == line.u:
                self._wait(u, beat)
        self._early = [each for each in self._early if each[0] > line.u]
        for record in [each for each in self._unknown if (each.u, each.journalled_at) == (line.u, line.journalled_at)]:
            self._unknown.remove(record)
            self.figures(record)

    def figures(self, record: Figures) -> None:
        """The first of two records of an update counts; heartbeats of it do not count any more."""
        if record.journalled_at not in self._lines.get(record.u, ()):
            self._unknown.append(record)
            return
        if _has_loss(record.metrics):
            self._release(record.u - 1)
            self._add(record.u, record.at, record.metrics)

    def heartbeat(self, beat: Heartbeat) -> None:
        """A report of an update that is not in the journal waits: it may be a moment ahead, or of no learner."""
        done = beat.metrics.get("update", 0.0) if beat.role == LEARNER else 0.0
        if not (math.isfinite(done) and done >= 1) or not _has_loss(beat.metrics):
            return  # one without a loss would stand for a later one that has it
        u = int(done) - 1
        if u in self._lines:
            self._wait(u, beat)
        elif len(self._early) < MOST_AHEAD:
            self._early.append((u, beat))

    def quiet(self) -> None:
        """Both topics were read and had nothing more: heartbeats that waited at the last call, too, have no figures."""
        self._release(self._before)
        self._before = max(self._waiting, default=-1)

    def ended(self) -> None:
        """Nothing more is read."""
        self._release(max(self._waiting, default=-1))

    def _wait(self, u: int, beat: Heartbeat) -> None:
        if u <= self._reported or beat.at < self._lines[u][0]:
            return  # a later report of the same update, or of one that the log lost before it had this one
        self._waiting.setdefault(u, beat)
        if not self._recorded:
            self.ended()
        elif len(self._waiting) > MOST_AHEAD:
            self._release(min(self._waiting))

    def _release(self, last: int) -> None:
        """The heartbeats of updates up to `last` have no figures to wait for."""
        for u in sorted(each for each in self._waiting if each <= last):
            beat = self._waiting.pop(u)
            self._add(u, beat.at, beat.metrics)

    def _add(self, u: int, at: int, metrics: Mapping[str, float]) -> None:
        self._waiting.pop(u, None)
        if u <= self._reported:
            return
        self._reported = u
        values = {
            f"learner/{name}": value
            for name, value in sorted(metrics.items())
            if name in METRICS and name not in NOT_OF_AN_UPDATE and math.isfinite(value)
        }
        self._taken.append(Point(LEARNER, Axis.UPDATE, u, at, values))


def _has_loss(metrics: Mapping[str, float]) -> bool:
    return any(name in METRICS and name.endswith(LOSS) for name in metrics)
