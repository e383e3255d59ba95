"""The last spans of a task's trace: the update that first learned from its trajectory, and the version that it led to.

An update learns from trajectories of many traces and has a span in each of them. The headers are read here, apart from
the fold, which never sees them. One thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from distrl.broker.producer import Headers
from distrl.broker.reader import RawRecord
from distrl.clock import Clock
from distrl.telemetry.tracing import OFF, Span, Tracer, passed_on
from distrl.types import LoggedTrajectory, LogPosition, Update, Version


class UpdateTraces:
    """The learner calls `read` with each record, and for each update `begin`, `folded` and `published`.

    An update that is redone after a restart gets no span: it had one when it was first made.
    """

    def __init__(self, tracer: Tracer, clock: Clock) -> None:
        self._tracer, self._clock = tracer, clock
        self._pending: dict[LogPosition, Headers] = {}
        """Headers of the records that no update has folded yet."""
        self._running: list[Span] = []
        """Spans of the update that is being folded."""
        self._unpublished: list[Span] = []
        """Spans of updates that no version follows yet."""
        self._u = -1
        self._folded_ms = 0

    def read(self, raw: RawRecord) -> None:
        if self._tracer is not OFF and (headers := passed_on(raw.headers)):
            self._pending[raw.position] = headers

    def begin(self, update: Update, window: Sequence[LoggedTrajectory], redone: bool) -> None:
        """`update` is about to fold `window`."""
        found = [self._pending.pop(logged.position, ()) for logged in window]
        if redone:
            return
        about, now = {"distrl.update": update.u, "distrl.trajectories": len(window)}, self._clock.now_ms()
        self._running = [self._tracer.begin("update", each, now, about, "consumer") for each in found if each]
        self._u = update.u

    def folded(self) -> None:
        self._folded_ms = self._clock.now_ms()
        for span in self._running:
            span.end(self._folded_ms)
        self._unpublished += self._running
        self._running = []

    def published(self, newest: Version | None) -> None:
        """newest: the newest version after the update. If it is of an older update, no version was due."""
        if newest is None or newest.update < self._u:
            return
        for span in self._unpublished:
            about = {"distrl.version": newest.version, "distrl.update": newest.update}
            span.child("publish version", self._folded_ms, about, "producer").end(self._clock.now_ms())
        self._unpublished = []
