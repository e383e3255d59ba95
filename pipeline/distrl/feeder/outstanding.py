"""The tasks that are fed and not finished, with running counts by partition and by version. Pure.

With 10,000 phones 30,000 tasks are outstanding, and the feeder needs these counts each time a trajectory arrives:
counting all tasks each time took more time than everything else it does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


class Versions:
    """A multiset of version numbers. It has few distinct ones, as `feeder.max_lag` bounds how old one may be."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def add(self, version: int) -> None:
        self._counts[version] += 1

    def remove(self, version: int) -> None:
        self._counts[version] -= 1
        if not self._counts[version]:
            del self._counts[version]

    @property
    def oldest(self) -> int | None:
        return min(self._counts, default=None)


@dataclass(slots=True)
class Fed:
    """One outstanding task, by the version that it was fed under."""

    version: int
    partition: int | None = None
    """None until it is sent, or its record is read."""
    offset: int | None = None
    """None until its record is read."""


class Outstanding:
    """Every method takes constant time, except `ended_before` and those that save or restore."""

    def __init__(self) -> None:
        self.versions = Versions()
        self.unread = 0
        """Tasks whose record was not read."""
        self._tasks: dict[str, Fed] = {}
        self._loads: Counter[int] = Counter()

    @classmethod
    def parse(cls, saved: Any, most: int) -> Outstanding:
        """The inverse of `to_json()`. Raises ValueError for anything else, and for more than `most` tasks."""
        made = cls()
        for task_id, fed in msgspec.convert(saved, dict[str, Fed]).items():
            made.add(task_id, fed.version)
            if fed.partition is not None:
                made.sent(task_id, fed.partition)
                if fed.offset is not None:
                    made.read(task_id, fed.partition, fed.offset)
        if len(made) > most:
            raise ValueError(f"more than {most} tasks are outstanding")
        return made

    def to_json(self) -> Mapping[str, Fed]:
        """The tasks in their order."""
        return self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._tasks

    @property
    def loads(self) -> Mapping[int, int]:
        """Tasks by partition, of those whose partition is known. A view: it changes with the tasks."""
        return self._loads

    def add(self, task_id: str, version: int) -> None:
        """Add a task that was fed under `version` and is not outstanding yet."""
        self._tasks[task_id] = Fed(version)
        self.versions.add(version)
        self.unread += 1

    def sent(self, task_id: str, partition: int) -> None:
        """Note that the task is being published to this partition. Ignored if it is not outstanding."""
        if (fed := self._tasks.get(task_id)) is not None:
            self._move(fed, partition)

    def read(self, task_id: str, partition: int, offset: int) -> None:
        """Note where the task's record was read; its first record counts. Ignored if it is not outstanding."""
        fed = self._tasks.get(task_id)
        if fed is not None and fed.offset is None:
            self._move(fed, partition)
            fed.offset = offset
            self.unread -= 1

    def unread_ids(self) -> set[str]:
        """The tasks whose record was not read. Walks through all tasks where there are any."""
        return {task_id for task_id, fed in self._tasks.items() if fed.offset is None} if self.unread else set()

    def end(self, task_id: str) -> None:
        """Remove a task that is finished, or that no worker will get. Ignored if it is not outstanding."""
        fed = self._tasks.pop(task_id, None)
        if fed is not None:
            self.versions.remove(fed.version)
            self._move(fed, None)
            self.unread -= fed.offset is None

    def ended_before(self, offsets: Mapping[int, int]) -> Iterator[str]:
        """The tasks whose record lies before these offsets by partition. Walks through all tasks."""
        for task_id, fed in self._tasks.items():
            if fed.offset is not None and fed.partition is not None and fed.offset < offsets.get(fed.partition, 0):
                yield task_id

    def _move(self, fed: Fed, partition: int | None) -> None:
        if fed.partition is not None:
            self._loads[fed.partition] -= 1
            if not self._loads[fed.partition]:
                del self._loads[fed.partition]
        if partition is not None:
            self._loads[partition] += 1
        fed.partition = partition


class Unlearned:
    """The trajectories that no update folds, by offset, with the oldest version of their steps."""

    def __init__(self) -> None:
        self.versions = Versions()
        self._at: dict[int, int] = {}

    @classmethod
    def parse(cls, saved: Any, most: int) -> Unlearned:
        """The inverse of `to_json()`. Raises ValueError for anything else, and for more than `most`."""
        made = cls()
        for offset, version in msgspec.convert(saved, dict[int, int]).items():
            made.add(offset, version)
        if len(made) > most:
            raise ValueError(f"more than {most} trajectories are not learned")
        return made

    def to_json(self) -> Mapping[int, int]:
        return self._at

    def __len__(self) -> int:
        return len(self._at)

    def add(self, offset: int, version: int) -> None:
        self._at[offset] = version
        self.versions.add(version)

    def end_before(self, offset: int) -> None:
        """Remove those before this offset, which an update has folded."""
        for at in [at for at in self._at if at < offset]:
            self.versions.remove(self._at.pop(at))
