"""When a worker belongs to the workers' group. Pure: it is told what is so and when, and owns no client or clock.

A worker that owns partitions keeps their tasks from every other worker. So it joins when the first of its phones
answers, and leaves when none has answered for AWAY_S.
"""

from __future__ import annotations

from math import inf

AWAY_S = 5.0
"""How long no phone may answer before the worker leaves. A phone that failed is connected anew within a second or two,
and a leave and a join move partitions of every worker."""

UNASSIGNED_S = 15.0
"""A member without a partition for longer is one too many. A rebalance takes about two seconds, and waits for up to
consumer.SESSION_TIMEOUT_S for a member that was killed."""

SAY_AGAIN_S = 60.0


class Membership:
    """Ask `wanted` and then `superfluous` in every round of the polling thread. now: seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._wanted = 0
        self._answered_at = -inf
        self._unassigned_since: float | None = None
        self._said_at = -inf

    def wanted(self, answering: int, now: float) -> int:
        """For how many phones to take tasks, given how many answer; 0: to be out of the group."""
        if answering:
            self._answered_at, self._wanted = now, answering
        elif now - self._answered_at >= AWAY_S:
            self._wanted = 0
        return self._wanted

    def superfluous(self, partitions: int, now: float) -> bool:
        """Whether it is to be said now that this member owns no partition: after UNASSIGNED_S, and seldom again."""
        if partitions or not self._wanted:
            self._unassigned_since = None
            return False
        if self._unassigned_since is None:
            self._unassigned_since = now
        if now - self._unassigned_since < UNASSIGNED_S or now - self._said_at < SAY_AGAIN_S:
            return False
        self._said_at = now
        return True
