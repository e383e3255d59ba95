"""Decides when a worker is a member of the workers' consumer group. Pure: owns no client or clock.

No other worker gets the tasks of a member's partitions. So a worker joins when its first phone answers, and leaves when
none has answered for AWAY_S.
"""

from __future__ import annotations

from math import inf

AWAY_S = 5.0
"""The worker leaves once no phone has answered for this long. A failed phone is reconnected within a second or two, and
each leave and join moves partitions of every worker."""

UNASSIGNED_S = 15.0
"""A member without a partition for this long is one too many. A rebalance takes about two seconds, and up to
consumer.SESSION_TIMEOUT_S if a member was killed."""

WARN_AGAIN_S = 60.0
"""Shortest interval between two warnings."""


class Membership:
    """Call `wanted`, then `should_warn`, in every round of the polling thread. now: seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._wanted = 0
        self._answered_at = -inf
        self._unassigned_since: float | None = None
        self._warned_at = -inf

    def wanted(self, answering: int, now: float) -> int:
        """The number of phones to take tasks for, given how many answer; 0: leave the group."""
        if answering:
            self._answered_at, self._wanted = now, answering
        elif now - self._answered_at >= AWAY_S:
            self._wanted = 0
        return self._wanted

    def should_warn(self, partitions: int, brokers_away: bool, now: float) -> bool:
        """Whether to warn now that this member owns no partition: after UNASSIGNED_S with a broker, then every
        WARN_AGAIN_S."""
        if partitions or brokers_away or not self._wanted:
            self._unassigned_since = None
            return False
        if self._unassigned_since is None:
            self._unassigned_since = now
        if now - self._unassigned_since < UNASSIGNED_S or now - self._warned_at < WARN_AGAIN_S:
            return False
        self._warned_at = now
        return True
