"""Reads the topics of a run into a RunView, from its last snapshot on. One thread; waits only inside `wait`."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from distrl.broker.group import uncommitted
from distrl.broker.packed_state import unpack
from distrl.broker.reader import LogReader, RawRecord, decoded, retained
from distrl.broker.snapshots import most_ids, restored, starts
from distrl.clock import SYSTEM_CLOCK
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

OnRead = Callable[[int, int], None]
"""Called while the log is read at the start, with how many records were read, and an upper bound of how many there
are."""


class RunFeed:
    """Follows a run's topics. Use as a context manager; close ends its readers."""

    def __init__(self, config: Config, on_read: OnRead | None = None) -> None:
        self._config = config
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
                self._take(reader.read(min(SLICE_S, left)), record)

    def status(self) -> RunStatus:
        return self._view.status(SYSTEM_CLOCK.now_ms())

    def progress(self) -> RunProgress:
        """Raises BrokerError."""
        waiting = [raw for raw in uncommitted(self._config) if not self._view.finished(raw_key(raw))]
        since = max(self._view.last_trajectory, min((raw.timestamp for raw in waiting), default=0))
        now = SYSTEM_CLOCK.now_ms()
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
