"""How many tasks may be fed now, so that no trajectory is older than `max_lag` versions when it is learned.

Pure: the feeder says what the topics hold and asks; there is no clock, thread or client here.

The bound. Let K = trajectories_per_update and P = publish_every. Update u folds at least K records and is journalled
before it is applied; version v belongs to an update u_v, and one follows after every P updates. A task is stamped
with the newest version f known when it is fed, and a worker begins it only under f or a newer one. Its lag is
(newest version when the update that folds it is journalled) − (oldest version among its steps) ≤ newest − f.

A phone may be arbitrarily slow, so a task may be overtaken by every task fed before or after it. If R tasks are fed
and not folded, the slowest is folded at the latest by update u + ⌈R/K⌉, and the newest version then is at most
v + ⌊(u − u_v + ⌈R/K⌉ − 1) / P⌋. That must not pass f + max_lag for the oldest f among the R, which is

    R ≤ K · (P · (f + max_lag − v + 1) − (u − u_v)).

With max_lag = 0 this is a barrier: K·P tasks at each version, and none before the next version: synchronous.
Records that the learner does not count (interrupted, duplicates) are not in R; were they folded along, there would
be fewer updates, not more.

Where the oldest is past the bound already (max_lag was lowered in the middle of a run, or a rollback was published),
nothing that is fed can change that, and only learning moves it on. Then as many are fed as the next update lacks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """What the topics say.

    outstanding: tasks fed whose trajectory is not in the log.
    unlearned: trajectories in the log that no journalled update folds.
    oldest_fed_version: the smallest version stamped on one of those; None if there is none.
    version: the newest version; update: the last journalled update; version_update: the update of that version.
    """

    outstanding: int
    unlearned: int
    oldest_fed_version: int | None
    version: int
    update: int
    version_update: int


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
        """How many more records may be ahead of the oldest one fed and not learned."""
        oldest = progress.version if progress.oldest_fed_version is None else progress.oldest_fed_version
        versions_left = min(oldest, progress.version) + self.max_lag - progress.version + 1
        since_version = max(0, progress.update - progress.version_update)
        updates = self.publish_every * versions_left - since_version
        if versions_left <= 0 and since_version < self.publish_every:
            updates = 1
        return self.trajectories_per_update * updates - progress.outstanding - progress.unlearned
