"""Reads the topics of a run into a RunView, from its last snapshot on. One thread; waits only inside `wait`."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from distrl.broker.group import uncommitted
from distrl.broker.packed_state import unpack
from distrl.broker.reader import LogReader, RawRecord, decoded, retained
from distrl.broker.snapshots import most_ids, restored, starts
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import Config
from distrl.errors import WireError
from distrl.telemetry.view import RunStatus, RunView
from distrl.types import Evaluation, Heartbeat, Record, Snapshot, Trajectory, Version

log = logging.getLogger(__name__)

WATCHED: Final[dict[str, type[Record]]] = {
    "versions": Version,
    "heartbeats": Heartbeat,
    "trajectories": Trajectory,
    "evaluations": Evaluation,
}
"""Versions first: a trajectory's lag is measured against the newest one known when it is added to the view."""
HEARTBEATS: Final = "heartbeats"
HEARTBEATS_READ = 3_000
"""Heartbeats read at a start: the last minute of a hundred processes, three times what makes one silent. Those that
were silent before come from a snapshot."""
SLICE_S = 0.05
"""Wait on one topic before the next; four of these are the view's delay."""

LATE_S = 1.0
"""How long past its due time a heartbeat is waited for."""
CLOCK_OFF_S = 5.0
"""Clocks that differ by this much are reported; a process counts as silent after 20 s."""

AGES: Final = 12
"""Reads with new heartbeats over which the clocks are compared: about a minute with one process, so that a clock that
was corrected is soon trusted again."""

OnRead = Callable[[int, int], None]
"""Called while the log is read at the start, with how many records were read, and an upper bound of how many there
are."""


class RunFeed:
    """Follows a run's topics. Use as a context manager; close ends its readers."""

    def __init__(self, config: Config, on_read: OnRead | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config, self._clock = config, clock
        self._ages: deque[int] = deque(maxlen=AGES)
        """How old new heartbeats were when they were read, in ms: this machine's clock minus the broker's, plus the
        delay of each."""
        self._least_ahead_ms = 0
        """A lower bound of this machine's clock minus the broker's, in ms: how far the time of a heartbeat that was
        appended after `_begun_ms` lies before it."""
        found = restored(config, [topic for topic in WATCHED if topic != HEARTBEATS], view_of)
        self._view, snapshot = found or (RunView(), None)
        with ExitStack() as opened:  # closes the open readers if a later topic cannot be read
            self._readers = [
                (opened.enter_context(LogReader(config, name, _start(config, name, snapshot))), record)
                for name, record in WATCHED.items()
            ]
            whole = sum(end - reader.next_offsets[p] for reader, _ in self._readers for p, end in reader.ends.items())
            read = 0
            for reader, record in self._readers:
                for batch in reader.to_end():
                    self._take(batch, record)
                    read += len(batch)
                    if on_read is not None:
                        on_read(read, whole)
            self._begun_ms = self._clock.now_ms()
            """When the start was read, and the end of the heartbeats was asked for again. New ones are at or behind
            that end, so were appended later. Those that came while the start was read are as old as that took long."""
            (self._beats,) = (reader for reader, record in self._readers if record is Heartbeat)
            self._beats.ask_ends()
            for batch in self._beats.to_end():
                self._take(batch, Heartbeat)
            self._open = opened.pop_all()

    def __enter__(self) -> RunFeed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def wait(self, seconds: float, stop: threading.Event | None = None) -> None:
        """Read new records for `seconds`, or until `stop` is set."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not (stop and stop.is_set()):
            for reader, record in self._readers:
                batch = reader.read(min(SLICE_S, left))
                self._take(batch, record)
                if record is Heartbeat:
                    self._compare(batch)

    def listen(self) -> None:
        """Wait for a new heartbeat, at most until one is due, where a wrong clock would explain what is seen: that no
        process is alive, or that records are from the future."""
        until = time.monotonic() + self._config.worker.heartbeat_s + LATE_S
        while self._ahead_ms is None and self._is_doubtful() and time.monotonic() < until:
            self.wait(len(self._readers) * SLICE_S)
        if self._ages:  # a heartbeat that came late must not make dead processes alive
            self._ages.append(self._least_ahead_ms)

    def _is_doubtful(self) -> bool:
        """Whether a wrong clock would explain what is seen. Counts the view's processes, as a status leaves out those
        that look forgotten to a clock that is far ahead."""
        return self._view.processes > 0 and (not self.status().heard() or self.ahead_s <= -CLOCK_OFF_S)

    def _compare(self, beats: Sequence[RawRecord]) -> None:
        """Compare this machine's clock with the broker's, by heartbeats as they arrive."""
        ends = self._beats.ends
        new = [raw.timestamp for raw in beats if raw.position.offset >= ends[raw.position.partition]]
        if new:
            self._ages.append(self._clock.now_ms() - max(new))
            self._least_ahead_ms = max(self._least_ahead_ms, self._begun_ms - min(new))

    @property
    def _ahead_ms(self) -> int | None:
        """An upper bound of this machine's clock minus the broker's, from the newest heartbeats; None before one has
        come."""
        return min(self._ages, default=None)

    @property
    def ahead_s(self) -> float:
        """How far this machine's clock is ahead of the broker's, at least, or, below 0, behind it.

        That a heartbeat was old when it came is no proof that it is ahead, as a frozen broker delivers late. That one
        was appended after `_begun_ms`, with an earlier time, is.
        """
        most = self._clock.now_ms() - self._view.newest if self._ahead_ms is None else self._ahead_ms
        return min(most, self._least_ahead_ms) / 1000

    def _now_ms(self) -> int:
        """The broker's time, as far as records tell it."""
        return max(self._clock.now_ms() - (self._ahead_ms or 0), self._view.newest)

    def status(self) -> RunStatus:
        return self._view.status(self._now_ms())

    def progress(self) -> RunProgress:
        """Raises BrokerError."""
        waiting = [raw for raw in uncommitted(self._config) if not self._view.finished(raw_key(raw))]
        since = max(self._view.last_trajectory, min((raw.timestamp for raw in waiting), default=0))
        now = self._now_ms()
        return RunProgress(
            Counter(raw.position.partition for raw in waiting), (now - since) / 1000, self._view.status(now).heard()
        )

    def _take(self, batch: list[RawRecord], record: type[Record]) -> None:
        for raw in batch:
            try:
                self._view.feed(decoded(raw, record), raw.timestamp)
            except WireError as error:
                log.debug("not shown: %s", error)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """loads: outstanding tasks by partition. quiet_s: since the last trajectory that was not interrupted, or since a
    task is outstanding.

    beats: the last heartbeat of every process that is not silent.
    """

    loads: Mapping[int, int]
    quiet_s: float
    beats: Sequence[Heartbeat]


def view_of(snapshot: Snapshot) -> RunView:
    """Raises WireError."""
    return unpack(snapshot.view, RunView, most_ids(snapshot))


def last_heartbeats(config: Config) -> Mapping[int, int]:
    """Where to begin to read heartbeats. Raises BrokerError."""
    return {p: max(first, end - HEARTBEATS_READ) for p, (first, end) in retained(config, HEARTBEATS).items()}


def _start(config: Config, topic: str, snapshot: Snapshot | None) -> Mapping[int, int]:
    if topic == HEARTBEATS:
        return last_heartbeats(config)
    return starts(snapshot, topic) if snapshot is not None else {}


def raw_key(raw: RawRecord) -> str:
    return (raw.key or b"").decode(errors="replace")


def status_of(config: Config) -> RunStatus:
    """The run's present state. Raises BrokerError if the broker or the run's topics are missing."""
    with RunFeed(config) as feed:
        return feed.status()
