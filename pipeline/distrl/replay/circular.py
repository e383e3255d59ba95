"""The circular replay buffer (DistRL, A.4.2): capacity N in transitions, i ← (i+1) mod N, filled in log order.

Words. A *slot* is a place for one transition, 0..N-1. An *entry* is a trajectory that is whole in the buffer. An
entry leaves, as a whole, when the slot of its first step is overwritten; as slots are overwritten in the order they
were filled, entries leave oldest first. Slots of an entry that has left hold garbage until they are overwritten.

The contents are a function of the log and of `bounds()`: a buffer rebuilt from both is equal bit by bit.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

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


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the N steps of all n entries lie, one entry after the other. Read-only; computed again only after the
    entries have changed."""

    entries: tuple[Entry, ...]
    """Oldest first."""
    lengths: Slots
    """(n,) steps of each entry."""
    begins: Slots
    """(n,) index of each entry's first step among the N steps."""
    owner: Slots
    """(N,) the number of the entry that each step belongs to."""
    slots: Slots
    """(N,) the slot of each step."""

    def of(self, column: NDArray[Any]) -> NDArray[Any]:
        """(N, ...) the values of `column` for all steps. Only for reading: it is a view unless the buffer wraps."""
        if not len(self.slots) or self.slots[0] <= self.slots[-1]:
            return column[self.slots[0] : self.slots[-1] + 1] if len(self.slots) else column[:0]
        return np.concatenate([column[self.slots[0] :], column[: self.slots[-1] + 1]])


@dataclass(frozen=True, slots=True)
class Rows(Sequence[tuple[Entry, int]]):
    """Some steps of entries: their slots, and, as a sequence, pairs of an entry and the index of its step.

    Pairs are made only as they are read, so reading columns touches no record.
    """

    layout: Layout
    owner: Slots
    """(B,) the number of each step's entry in the layout."""
    steps: Slots
    """(B,) the step's index in its entry."""

    @property
    def slots(self) -> Slots:
        """(B,) the slot of each step."""
        found: Slots = self.layout.slots[self.layout.begins[self.owner] + self.steps]
        return found

    @property
    def last(self) -> NDArray[np.bool_]:
        """(B,) whether it is the last step of its entry."""
        found: NDArray[np.bool_] = self.steps == self.layout.lengths[self.owner] - 1
        return found

    def __len__(self) -> int:
        return len(self.owner)

    def __iter__(self) -> Iterator[tuple[Entry, int]]:
        entries = self.layout.entries
        return ((entries[owner], step) for owner, step in zip(self.owner.tolist(), self.steps.tolist(), strict=True))

    @overload
    def __getitem__(self, index: int) -> tuple[Entry, int]: ...

    @overload
    def __getitem__(self, index: slice) -> Rows: ...

    def __getitem__(self, index: int | slice) -> tuple[Entry, int] | Rows:
        if isinstance(index, slice):
            return Rows(self.layout, self.owner[index], self.steps[index])
        return self.layout.entries[self.owner[index]], int(self.steps[index])


class OtherRecordError(StoreError):
    """The log holds another record in the place of one of the buffer."""


class CircularBuffer:
    """Holds trajectories by reference (token ids, screenshot names), and values computed for each step in columns."""

    def __init__(self, capacity: int, columns: Iterable[str] = (), vectors: Mapping[str, int] | None = None) -> None:
        """columns: names of the values computed for each transition, one float64 each; 0 until computed. vectors: names
        of columns with several float32 for each transition -> how many."""
        self.capacity = capacity
        self.written = 0
        """Transitions ever written; the next slot is this mod capacity."""
        names = tuple(columns)
        self._numbers = np.zeros((len(names), capacity))
        self._vectors = {name: np.zeros((capacity, width), np.float32) for name, width in (vectors or {}).items()}
        self.columns: Mapping[str, NDArray[Any]] = {**dict(zip(names, self._numbers, strict=True)), **self._vectors}
        """Name -> column, a view that is written in place."""
        self.logprobs: Floats = np.zeros(capacity)
        """(capacity,) log μ(a|s) of each transition, as recorded. Not a column, since it follows from the log."""
        self.screens: Slots = np.zeros(capacity, dtype=np.int64)
        """(capacity,) the handle of each transition's screenshot, cached by its readers; 0 before. Not a column, since
        it is valid in this process only."""
        self._entries: deque[Entry] = deque()
        self._ring: Slots = np.tile(np.arange(capacity), 2)
        """(2 capacity,) all slots, twice, read-only: the slots of consecutive steps are one slice of it, even if they
        wrap."""
        self._ring.flags.writeable = False
        self._starts: Slots = np.zeros(2 * capacity, dtype=np.int64)
        """The start of the i-th trajectory ever added, at i mod capacity and again `capacity` behind it. The starts of
        all entries are one slice of it: there are at most `capacity` entries, as each has a step."""
        self._added = 0
        """Trajectories ever added."""
        self._layout: Layout | None = None
        """None: it must be computed again."""

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The whole trajectories, oldest first."""
        return self.layout.entries

    @property
    def layout(self) -> Layout:
        if self._layout is None:
            self._layout = self._laid_out()
        return self._layout

    def __len__(self) -> int:
        """Transitions of whole trajectories; at most the capacity."""
        return self.written - self._entries[0].start if self._entries else 0

    def add(self, logged: LoggedTrajectory) -> Entry:
        """Write one trajectory; the entries whose first step it overwrites leave.

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
        self._append(entry)
        for part in self._parts(entry.start, length):
            self._numbers[:, part] = 0.0
            for vector in self._vectors.values():
                vector[part] = 0.0
        return entry

    def slots(self, entry: Entry) -> Slots:
        """(T,) the slots of an entry's steps, in order."""
        first = entry.start % self.capacity
        return self._ring[first : first + len(entry)]

    def live(self) -> Slots:
        """(len(self),) the slots of all entries' steps, one entry after the other."""
        return self.layout.slots

    def bounds(self) -> dict[str, Any]:
        """What rebuilds the buffer with the log, JSON-able. `entries` has [topic, partition, offset, start]."""
        places = [(entry.logged.position, entry.start) for entry in self._entries]
        return {
            "capacity": self.capacity,
            "written": self.written,
            "entries": [[place.topic, place.partition, place.offset, start] for place, start in places],
        }

    def refill(
        self,
        bounds: Mapping[str, Any],
        log: Iterable[LoggedTrajectory],
        columns: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:
        """Become the buffer that `bounds` and `columns` were taken from. columns: all 0 if None. log: at least the
        records of its entries.

        Raises StoreError where that buffer had another capacity, or `log` lacks one of its records; OtherRecordError
        where `log` has one of another length in its place.
        """
        if int(bounds["capacity"]) != self.capacity:
            raise StoreError(
                "checkpoint",
                f"has a buffer of {bounds['capacity']} transitions, and this one is of {self.capacity}",
                "keep the capacity that the run began with",
            )
        found = {logged.position: logged for logged in log}
        self._entries.clear()
        self._layout = None
        self.written = int(bounds["written"])
        entries = bounds["entries"]
        ends = [*(start for *_, start in entries[1:]), self.written]  # of an empty buffer one too many
        for (topic, partition, offset, start), end in zip(entries, ends, strict=False):
            position = LogPosition(topic, partition, offset)
            if position not in found:
                raise StoreError(
                    f"{topic} {partition}:{offset}",
                    "the replay buffer holds this record and the log no longer does",
                    "keep the topic's records for longer than the buffer's transitions last",
                )
            if len(found[position].trajectory.steps) != int(end) - int(start):
                raise OtherRecordError(
                    f"{topic} {partition}:{offset}",
                    "the log holds another record there than the replay buffer did",
                    "restore the topic's records",
                )
            self._append(Entry(found[position], int(start)))
        for name, column in (columns or {}).items():
            self.columns[name][:] = column

    def _append(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._layout = None
        self._starts[self._added % self.capacity :: self.capacity] = entry.start
        self._added += 1
        logprobs, begin = [step.logprob for step in entry.steps], 0
        for part in self._parts(entry.start, len(logprobs)):
            end = begin + part.stop - part.start
            self.logprobs[part], begin = logprobs[begin:end], end
            self.screens[part] = 0

    def _parts(self, start: int, length: int) -> list[slice]:
        """The slots of `length` transitions from the `start`-th ever written on, as slices: two where they wrap."""
        first, end = start % self.capacity, start % self.capacity + length
        if end <= self.capacity:
            return [slice(first, end)]
        return [slice(first, self.capacity), slice(0, end - self.capacity)]

    def _laid_out(self) -> Layout:
        """Entries lie one behind the other, so the layout follows from their starts."""
        entries = tuple(self._entries)
        oldest, first = (self._added - len(entries)) % self.capacity, self.written - len(self)
        bounds = np.concatenate([self._starts[oldest : oldest + len(entries)], [self.written]]) - first
        begins, lengths = bounds[:-1], bounds[1:] - bounds[:-1]
        slots = self._ring[first % self.capacity :][: len(self)]
        layout = Layout(entries, lengths, begins, np.repeat(np.arange(len(entries)), lengths), slots)
        for array in (layout.lengths, layout.begins, layout.owner):
            array.flags.writeable = False
        return layout

    def digest(self) -> str:
        """sha256 (hex) over each entry's position, the recorded steps, and the columns."""
        total = hashlib.sha256(f"{self.capacity} {self.written}".encode())
        for entry in self._entries:
            total.update(repr((entry.logged.position, entry.start, entry.logged.trajectory.outcome.value)).encode())
            for step in entry.steps:
                recorded = (step.screenshot.sha256, step.prompt_ids, step.action_ids, float(step.logprob).hex())
                total.update(repr(recorded).encode())
        for column in self.columns.values():
            total.update(column[self.live()].astype("<f8").tobytes())
        return total.hexdigest()
