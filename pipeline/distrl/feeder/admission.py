"""How many tasks may be fed now, so that no trajectory is older than `max_lag` versions when it is learned.

Pure: the state of the topics is an argument; there is no clock, thread or client here.

The bound. Let K = trajectories_per_update and P = publish_every. Update u folds at least K records and is journalled
before it is applied; version v belongs to an update u_v, and one follows after every P updates. A task is stamped
with the newest version f known when it is fed, and a worker begins it only under f or a newer one. Its lag is
(newest version when the update that folds it is journalled) − (oldest version among its steps) ≤ newest − f.

A phone may be arbitrarily slow, so every other task may overtake a task. If R tasks are fed and not folded, the slowest
is folded at the latest by update u + ⌈R/K⌉, and the newest version then is at most
v + ⌊(u − u_v + ⌈R/K⌉ − 1) / P⌋. That must not exceed f + max_lag for the oldest f among the R, which is

    R ≤ K · (P · (f + max_lag − v + 1) − (u − u_v)).

With max_lag = 0 this is a barrier: K·P tasks per version, and no more before the next version: synchronous.
Records that the learner does not count (interrupted, duplicates) are not in R; counting them would give fewer updates,
not more.

If the oldest already exceeds the bound (max_lag was lowered during a run, or a rollback was published), feeding cannot
change that, only learning can. Then as many tasks are fed as the next update lacks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of the topics."""

    outstanding: int
    """Tasks fed whose trajectory is not in the log."""
    unlearned: int
    """Trajectories in the log that no journalled update folds."""
    oldest_fed_version: int | None
    """The smallest version stamped on an outstanding or unlearned task; None if there is none."""
    version: int
    """The newest version."""
    update: int
    """The last journalled update."""
    version_update: int
    """The update of the newest version."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Settings: learner.trajectories_per_update, learner.publish_every, feeder.max_lag, feeder.outstanding."""

    trajectories_per_update: int
    publish_every: int
    max_lag: int
    outstanding: int

    def allowed(self, progress: Progress) -> int:
        """How many tasks may be fed now, at least 0."""
        return max(0, min(self.outstanding - progress.outstanding, self._room(progress)))

    def _room(self, progress: Progress) -> int:
        """How many more tasks may be fed before the oldest one not learned exceeds max_lag."""
        oldest = progress.version if progress.oldest_fed_version is None else progress.oldest_fed_version
        versions_left = min(oldest, progress.version) + self.max_lag - progress.version + 1
        since_version = max(0, progress.update - progress.version_update)
        updates = self.publish_every * versions_left - since_version
        if versions_left <= 0 and since_version < self.publish_every:
            updates = 1
        return self.trajectories_per_update * updates - progress.outstanding - progress.unlearned
