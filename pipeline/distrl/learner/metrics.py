"""Metrics of a learner: of its last update, of the window that this folded, and of how its time was spent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.types import LoggedTrajectory, Update

FOLDING: Final = "folding_seconds"
WAITING: Final = "waiting_seconds"


class LearnerMetrics:
    """One thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}
        self._seconds = {FOLDING: 0.0, WAITING: 0.0}
        self.update_seconds = 0.0
        """Of the last update, retries included."""
        self.stalled = False
        """Whether the learner waits for the store or the broker."""

    @contextmanager
    def spending(self, name: str) -> Iterator[None]:
        """Add the time of the block to `name`, FOLDING or WAITING."""
        began = self._clock.ticks()
        try:
            yield
        finally:
            self._seconds[name] += self._clock.ticks() - began

    def folded(self, metrics: Mapping[str, float], window: Sequence[LoggedTrajectory], update: Update) -> None:
        """Note the metrics that the fold of `window` by `update` returned."""
        self._last = {**metrics, **window_metrics(window, update)}

    def metrics(self) -> dict[str, float]:
        """All of them, named as in telemetry.metrics; those of an update once there was one."""
        of_update = {**self._last, "update_seconds": self.update_seconds} if self._last else {}
        return of_update | self._seconds | {"stalled": float(self.stalled)}


def window_metrics(window: Sequence[LoggedTrajectory], update: Update) -> dict[str, float]:
    """Lag in versions and age in seconds of a window's trajectories when `update` folds them.

    Demonstrations do not count; empty where nothing else is left. The lag of a trajectory is as in evaluate/curves.py:
    the newest version at the update − the oldest version that acted in it.
    """
    played = [logged.trajectory for logged in window if logged.trajectory.steps and not logged.trajectory.is_expert]
    if not played:
        return {}
    lags = [max(0, update.version - min(step.version for step in each.steps)) for each in played]
    ages = [max(0, update.journalled_at - each.finished_at) for each in played]
    return {
        "window_lag_mean": sum(lags) / len(lags),
        "window_lag_max": float(max(lags)),
        "window_age_seconds": sum(ages) / len(ages) / 1000,
    }
