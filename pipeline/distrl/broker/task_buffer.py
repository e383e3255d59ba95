"""Tasks that a worker has read and not begun, in the order in which they are begun. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from distrl.broker.reader import RawRecord


class TaskBuffer:
    """The tasks of a partition come in their order; of the first tasks of several partitions, the one that the broker
    wrote first.

    In the order of arrival, tasks of the partitions that a fetch returns last would wait while newer ones of others are
    begun. They would grow old, and `feeder.max_lag` would then hold back every phone until they are done.
    """

    def __init__(self) -> None:
        self._by_partition: dict[int, deque[RawRecord]] = {}
        """Without empty queues."""

    def __len__(self) -> int:
        return sum(map(len, self._by_partition.values()))

    def add(self, raw: RawRecord) -> None:
        self._by_partition.setdefault(raw.position.partition, deque()).append(raw)

    def pop(self) -> RawRecord:
        """The next one. Raises IndexError if there is none."""
        if not self._by_partition:
            raise IndexError("no task is buffered")
        partition = min(self._by_partition, key=lambda at: (self._by_partition[at][0].timestamp, at))
        raw = self._by_partition[partition].popleft()
        if not self._by_partition[partition]:
            del self._by_partition[partition]
        return raw

    def drop(self, partitions: Collection[int]) -> None:
        """Forget the tasks of these partitions, which belong to another worker now."""
        for partition in partitions:
            self._by_partition.pop(partition, None)

    def clear(self) -> None:
        self._by_partition.clear()
