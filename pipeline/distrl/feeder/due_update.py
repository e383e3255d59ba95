"""For how long the learner has made no update of what is there. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class DueUpdate:
    """Watches what the log says: a learner that is well by itself may make no update either, as one that reaches no
    broker or cannot put aside what it could not read."""

    per_update: int
    """Trajectories of an update."""
    since_s: float
    """When it was not due, or one was made, last. By the clock of `waits_s`."""
    update: int = -1
    """The last one that was made then."""

    def waits_s(self, unlearned: int, update: int, now_s: float) -> float:
        """Seconds for which the trajectories of an update are there; 0 while they are not. unlearned: trajectories.
        update: the last that was made."""
        if unlearned < self.per_update or update != self.update:
            self.update, self.since_s = update, now_s
        return now_s - self.since_s
