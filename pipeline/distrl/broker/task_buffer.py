"""Tasks that a worker has read and not begun, in the order in which they are begun. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from distrl.broker.reader import RawRecord


class TaskBuffer:
    """Those of a partition in their order; of several partitions, the one that the broker wrote first.

    By arrival, tasks of partitions that a fetch names last would wait while newer ones of others are begun. They grow
    old, and `feeder.max_lag` then holds back every phone until they are done.
    """

    def __init__(self) -> None:
        self._by_partition: dict[int, deque[RawRecord]] = {}
        """None is empty."""

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
        """These belong to another worker now."""
        for partition in partitions:
            self._by_partition.pop(partition, None)

    def clear(self) -> None:
        self._by_partition.clear()
