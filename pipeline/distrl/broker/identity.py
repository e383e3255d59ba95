"""A trajectory is its task id: the first record in the log wins, a later one is counted and skipped."""

from __future__ import annotations

from collections.abc import Iterable


class FirstWins:
    """Which records of a log are first of their id. Pure; fed in log order, it answers alike in every process.

    seen: ids of the records before the place where reading starts (from a checkpoint).
    """

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = set(seen)
        self.duplicates = 0

    def admits(self, record_id: str) -> bool:
        """True for the first record with this id; a later one is counted in `duplicates`."""
        if record_id in self._seen:
            self.duplicates += 1
            return False
        self._seen.add(record_id)
        return True

    def __contains__(self, record_id: str) -> bool:
        return record_id in self._seen

    def __len__(self) -> int:
        return len(self._seen)
