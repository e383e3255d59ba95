"""For how long an update has been due that the learner does not make. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class DueUpdate:
    """Measures the delay from the log, not from the learner's heartbeats: a learner that looks healthy may still make
    no updates, for instance because it cannot write dead letters."""

    per_update: int
    """Trajectories that an update needs."""
    since_s: float
    """When no update was due, or one was made, for the last time. By the clock of `waits_s`."""
    update: int = -1
    """The last update that was made by then."""

    def waits_s(self, unlearned: int, update: int, now_s: float) -> float:
        """Seconds since the next update has had enough trajectories; 0 while it has not. unlearned: number of
        trajectories that no update has folded. update: the last one that was made."""
        if unlearned < self.per_update or update != self.update:
            self.update, self.since_s = update, now_s
        return now_s - self.since_s
