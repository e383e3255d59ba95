"""The status of one process: whether its loop makes progress, whether it can work, and its metrics.

The role's own threads write, the thread of endpoint.py reads. A report is made by the loop and not by the scrape, so
that nothing of a role is read while it changes; a scrape finds one that is at most SHOWN_S older than the loop's last
turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from distrl.broker.heartbeats import HeartbeatSender
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.types import DeviceHealth, Version

SHOWN_S: Final = 1.0
"""How often a report is made for scrapes, however rare heartbeats are."""

Labelled = Mapping[tuple[str, ...], float]
"""Values of a metric's labels, in their order -> its value."""


@dataclass(frozen=True, slots=True)
class Report:
    """The figures of a process at one time, named as in METRICS."""

    version: Version | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    devices: tuple[DeviceHealth, ...] = ()
    labelled: Mapping[str, Labelled] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to a probe."""

    ok: bool
    why: str


class Monitor:
    """Of one process. Thread-safe without a lock: each field is replaced as a whole.

    A loop that waits for a broker, a store or a phone goes on turning and reports progress; one that hangs does not.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._began = clock.ticks()
        self._progressed: float | None = None
        self._waits_for: str | None = "its start"
        self.last: Report | None = None
        """None before the first report."""

    def progress(self) -> None:
        """The main loop has made a turn."""
        self._progressed = self._clock.ticks()

    def ready(self) -> None:
        """The process can do its work."""
        self._waits_for = None

    def waits_for(self, what: str) -> None:
        """The process cannot do its work before `what`, such as "a version"."""
        self._waits_for = what

    def show(self, report: Report) -> None:
        self.last = report

    @property
    def progress_age_s(self) -> float:
        """Seconds since the loop made progress; since the start of the process before the first time."""
        return self._clock.ticks() - (self._began if self._progressed is None else self._progressed)

    def liveness(self, stuck_s: float) -> Verdict:
        """Whether the loop has made progress within `stuck_s`. It is not alive before it has made any: how long a start
        may take is for a start-up probe to bound.
        """
        age_s = self.progress_age_s
        if self._progressed is None:
            return Verdict(False, f"starting for {age_s:.0f} s: the main loop has not begun")
        if age_s > stuck_s:
            return Verdict(
                False, f"stuck: the main loop made no progress for {age_s:.0f} s (monitoring.stuck_s {stuck_s:g})"
            )
        return Verdict(True, f"the main loop made progress {age_s:.1f} s ago")

    def readiness(self) -> Verdict:
        waits_for = self._waits_for
        return Verdict(True, "ready") if waits_for is None else Verdict(False, f"waiting for {waits_for}")


class Reporter:
    """Makes a process's report where it is due: for scrapes, and in heartbeats. One thread."""

    def __init__(self, heartbeats: HeartbeatSender, monitor: Monitor, clock: Clock = SYSTEM_CLOCK) -> None:
        self._heartbeats, self.monitor, self._clock = heartbeats, monitor, clock
        self._shown = float("-inf")

    @property
    def due(self) -> bool:
        """Whether `report` should be called; true at once."""
        return self._heartbeats.due or self._clock.ticks() - self._shown >= SHOWN_S

    def report(
        self,
        version: Version | None,
        metrics: Mapping[str, float],
        devices: Sequence[DeviceHealth] = (),
        partitions: Sequence[int] | None = None,
        labelled: Mapping[str, Labelled] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Show the report, and send it as a heartbeat if one is due or it is to be sent `at_once`.

        Raises as HeartbeatSender.send.
        """
        self._shown = self._clock.ticks()
        shown = dict(metrics) if partitions is None else {**metrics, "partitions": float(len(partitions))}
        self.monitor.show(Report(version, shown, tuple(devices), labelled or {}))
        if at_once or self._heartbeats.due:
            self._heartbeats.send(version, metrics, devices, partitions)
