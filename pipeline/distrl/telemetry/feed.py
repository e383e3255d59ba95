"""Reads the topics of a run into a RunView. Belongs to one thread; waits only inside `wait`."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final

from distrl.broker.group import uncommitted
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import WireError
from distrl.telemetry.view import RunView, Snapshot
from distrl.types import Evaluation, Heartbeat, Record, Trajectory, Version

log = logging.getLogger(__name__)

WATCHED: Final[dict[str, type[Record]]] = {
    "versions": Version,
    "heartbeats": Heartbeat,
    "trajectories": Trajectory,
    "evaluations": Evaluation,
}
"""Versions first: a trajectory's lag is measured against the newest one known when it is added to the view."""
SLICE_S = 0.05
"""Wait on one topic before the next; four of these are the view's delay."""


class RunFeed:
    """Follows a run's topics from their beginning. Use as a context manager; close ends its readers."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._view = RunView()
        self._last_trajectory = 0  # by the broker's clock, ms since the epoch
        with ExitStack() as opened:  # closes the open readers if a later topic cannot be read
            self._readers = [
                (opened.enter_context(LogReader(config, name)), record) for name, record in WATCHED.items()
            ]
            for reader, record in self._readers:
                for batch in reader.to_end():
                    self._take(batch, record)
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

    def snapshot(self) -> Snapshot:
        return self._view.snapshot(SYSTEM_CLOCK.now_ms())

    def progress(self) -> RunProgress:
        """The outstanding tasks by partition, and how long no trajectory has come. Raises BrokerError."""
        waiting = [raw for raw in uncommitted(self._config) if not self._view.finished(raw_key(raw))]
        since = max(self._last_trajectory, min((raw.timestamp for raw in waiting), default=0))
        now = SYSTEM_CLOCK.now_ms()
        return RunProgress(
            Counter(raw.position.partition for raw in waiting), (now - since) / 1000, self._view.snapshot(now).heard()
        )

    def _take(self, batch: list[RawRecord], record: type[Record]) -> None:
        for raw in batch:
            if record is Trajectory:
                self._last_trajectory = max(self._last_trajectory, raw.timestamp)
            try:
                self._view.feed(decoded(raw, record))
            except WireError as error:
                log.debug("not shown: %s", error)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """loads: outstanding tasks by partition. quiet_s: since the last trajectory, or since a task is outstanding.

    beats: the last heartbeat of every process that is not silent.
    """

    loads: Mapping[int, int]
    quiet_s: float
    beats: Sequence[Heartbeat]


def raw_key(raw: RawRecord) -> str:
    return (raw.key or b"").decode(errors="replace")


def snapshot_of(config: Config) -> Snapshot:
    """The run's present state. Raises BrokerError if the broker or the run's topics are missing."""
    with RunFeed(config) as feed:
        return feed.snapshot()
