"""The workers as their heartbeats show them, for the pace of feeding and for what is said of a stall. Pure.

No result depends on it: how many tasks are outstanding changes when trajectories come, never what is learned from them.
"""

from __future__ import annotations

from distrl.telemetry.stalls import phones_answering
from distrl.types import Heartbeat

SILENT_S = 15.0
"""A worker that was not heard of for longer counts no more; several heartbeats must be lost for that."""


class Fleet:
    """now: seconds of the feeder's own monotonic clock, so that no clock of a worker matters."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, Heartbeat]] = {}

    def see(self, beat: Heartbeat, now: float) -> None:
        if beat.role == "worker":
            self._heard[beat.process] = (now, beat)

    def beats(self, now: float) -> list[Heartbeat]:
        """The last heartbeat of every worker that is not silent, by name."""
        return [beat for _, (at, beat) in sorted(self._heard.items()) if now - at <= SILENT_S]

    def phones(self, now: float) -> int:
        return phones_answering(self.beats(now))
