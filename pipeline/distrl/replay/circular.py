"""The circular replay buffer (DistRL, A.4.2): capacity N in transitions, i ← (i+1) mod N, filled in log order.

Words. A *slot* is a place for one transition, 0..N-1. An *entry* is a trajectory that is whole in the buffer. An
entry leaves, as a whole, when the slot of its first step is overwritten; as slots are overwritten in the order they
were filled, entries leave oldest first. What a slot held of a gone entry is garbage until it is overwritten.

The contents are a function of the log and of `bounds()`: a buffer rebuilt from both is equal bit by bit.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from distrl.errors import ConfigError, StoreError
from distrl.types import LoggedTrajectory, LogPosition, Step

Slots = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Entry:
    """A trajectory in the buffer. start: transitions ever written before its first one, so its slot is start mod N."""

    logged: LoggedTrajectory
    start: int

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.logged.trajectory.steps

    def __len__(self) -> int:
        return len(self.logged.trajectory.steps)


class CircularBuffer:
    """Trajectories by reference (token ids, screenshot names), and what is computed of their steps in flat columns."""

    def __init__(self, capacity: int, columns: Iterable[str] = ()) -> None:
        """columns: names of what is computed for each transition, a float64 each; 0 until computed."""
        self.capacity = capacity
        self.written = 0
        """Transitions ever written; the next slot is this mod capacity."""
        self.columns: dict[str, Floats] = {name: np.zeros(capacity) for name in columns}
        self._entries: deque[Entry] = deque()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The whole trajectories, oldest first."""
        return tuple(self._entries)

    def __len__(self) -> int:
        """Transitions of whole trajectories; at most the capacity."""
        return sum(len(entry) for entry in self._entries)

    def add(self, logged: LoggedTrajectory) -> Entry:
        """Write one trajectory; those whose first step it overwrites leave.

        Raises ValueError for an empty one and ConfigError for one longer than the capacity.
        """
        length = len(logged.trajectory.steps)
        if not length:
            raise ValueError(f"{logged.position} has no steps")
        if length > self.capacity:
            raise ConfigError(
                "algorithm.replay.capacity",
                f"a trajectory of {length} steps does not fit into {self.capacity} transitions",
                "set algorithm.replay.capacity to many times the longest episode",
            )
        entry = Entry(logged, self.written)
        self.written += length
        while self._entries and self._entries[0].start < self.written - self.capacity:
            self._entries.popleft()
        self._entries.append(entry)
        for column in self.columns.values():
            column[self.slots(entry)] = 0.0
        return entry

    def slots(self, entry: Entry) -> Slots:
        """(T,) the slots of an entry's steps, in order."""
        return (entry.start + np.arange(len(entry), dtype=np.int64)) % self.capacity

    def live(self) -> Slots:
        """(len(self),) the slots of all entries' steps, one entry after the other."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *map(self.slots, self._entries)])

    def bounds(self) -> dict[str, Any]:
        """What, with the log, rebuilds the buffer: JSON-able. `entries` has [topic, partition, offset, start]."""
        places = [(entry.logged.position, entry.start) for entry in self._entries]
        return {
            "capacity": self.capacity,
            "written": self.written,
            "entries": [[place.topic, place.partition, place.offset, start] for place, start in places],
        }

    def refill(
        self, bounds: Mapping[str, Any], log: Iterable[LoggedTrajectory], columns: Mapping[str, Floats] | None = None
    ) -> None:
        """Become the buffer that `bounds` and `columns` (all 0 if none) were taken of. `log` may hold more than needed.

        Raises StoreError where that one had another capacity, or the log no longer holds one of its records.
        """
        if int(bounds["capacity"]) != self.capacity:
            raise StoreError(
                "checkpoint",
                f"has a buffer of {bounds['capacity']} transitions, and this one is of {self.capacity}",
                "keep the capacity that the run began with",
            )
        found = {logged.position: logged for logged in log}
        self._entries.clear()
        self.written = int(bounds["written"])
        for topic, partition, offset, start in bounds["entries"]:
            position = LogPosition(topic, partition, offset)
            if position not in found:
                raise StoreError(
                    f"{topic} {partition}:{offset}",
                    "the replay buffer holds this record and the log no longer does",
                    "keep the topic's records for longer than the buffer's transitions last",
                )
            self._entries.append(Entry(found[position], int(start)))
        for name, column in (columns or {}).items():
            self.columns[name][:] = column

    def digest(self) -> str:
        """sha256 (hex) over where each entry stands, what its steps recorded, and all that is computed of them."""
        total = hashlib.sha256(f"{self.capacity} {self.written}".encode())
        for entry in self._entries:
            total.update(repr((entry.logged.position, entry.start, entry.logged.trajectory.outcome.value)).encode())
            for step in entry.steps:
                recorded = (step.screenshot.sha256, step.prompt_ids, step.action_ids, float(step.logprob).hex())
                total.update(repr(recorded).encode())
        for column in self.columns.values():
            total.update(column[self.live()].astype("<f8").tobytes())
        return total.hexdigest()
