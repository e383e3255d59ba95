"""Which tasks a worker was handed, which are done, and how far each partition may be committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Partition:
    waiting: deque[int] = field(default_factory=deque)
    """Offsets handed out and not yet part of the committable prefix, ascending."""
    done: set[int] = field(default_factory=set)
    """Offsets in `waiting` whose tasks are done."""
    commit: int | None = None
    """One past the last record of the done prefix; None until there is one."""
    confirmed: int | None = None
    """The commit that the broker has stored."""


class InFlight:
    """Bookkeeping of the tasks topic for one worker process. Pure: it owns no client, clock, thread or lock.

    Tasks end out of order and a commit covers everything before it, so only the longest prefix of *delivered* records
    that are all done is committable. (Delivered, not consecutive: offsets have gaps.)
    A revoked partition is forgotten, but its running tasks are remembered: if the partition is assigned again, the same
    task is not begun a second time on another phone.
    """

    def __init__(self) -> None:
        self._owned: dict[int, _Partition] = {}
        self._running: set[tuple[int, int]] = set()

    @property
    def running(self) -> int:
        """Tasks handed out and not finished, also of revoked partitions."""
        return len(self._running)

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self._owned)

    def assigned(self, partitions: Iterable[int]) -> None:
        for partition in partitions:
            self._owned.setdefault(partition, _Partition())

    def revoked(self, partitions: Iterable[int]) -> None:
        """These partitions belong to another worker now; their tasks in flight end uncommitted."""
        for partition in partitions:
            self._owned.pop(partition, None)

    def delivered(self, partition: int, offset: int) -> bool:
        """A record was read. True if its task is to be begun; False if it runs already or is not ours."""
        state = self._owned.get(partition)
        if state is None or (state.waiting and offset <= state.waiting[-1]):
            return False
        if state.commit is not None and offset < state.commit:
            return False
        state.waiting.append(offset)
        if (partition, offset) in self._running:
            return False
        self._running.add((partition, offset))
        return True

    def dropped(self, partition: int, offset: int) -> None:
        """The task was handed out and never begun. If its record is delivered again, it is handed out again.

        Only for partitions that are revoked, or about to be: others do not deliver a record twice.
        """
        self._running.discard((partition, offset))

    def finished(self, partition: int, offset: int) -> bool:
        """The task's trajectory is acknowledged. False if ignored (partition revoked, or called twice)."""
        self._running.discard((partition, offset))
        state = self._owned.get(partition)
        if state is None or offset in state.done or offset not in state.waiting:
            return False
        state.done.add(offset)
        while state.waiting and state.waiting[0] in state.done:
            first = state.waiting.popleft()
            state.done.remove(first)
            state.commit = first + 1
        return True

    def committable(self) -> dict[int, int]:
        """Partition -> offset to commit, for partitions with anything new to commit."""
        return {p: s.commit for p, s in self._owned.items() if s.commit is not None and s.commit != s.confirmed}

    def confirmed(self, offsets: Mapping[int, int]) -> None:
        """The broker has stored these commits."""
        for partition, offset in offsets.items():
            state = self._owned.get(partition)
            if state is not None and offset > (state.confirmed or 0):
                state.confirmed = offset
