"""The workers by their heartbeats, for the number of outstanding tasks and for stall warnings. Pure.

No result depends on it: how many tasks are outstanding changes when trajectories arrive, not what is learned from them.
"""

from __future__ import annotations

from distrl.telemetry.stalls import phones_answering
from distrl.types import Heartbeat

SILENT_S = 15.0
"""A worker without a heartbeat for longer no longer counts; several heartbeats must be lost for that."""


class Fleet:
    """now: seconds of the feeder's own monotonic clock, so that no clock of a worker matters."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, Heartbeat, int]] = {}
        """By worker: when, its last heartbeat, and how many phones answer by it. Counted once a heartbeat: the feeder
        asks after each trajectory, and a fleet has thousands."""

    def see(self, beat: Heartbeat, now: float) -> None:
        if beat.role == "worker":
            if beat.process not in self._heard:  # a pod that a rollout replaced never comes back under its name
                self._heard = {name: heard for name, heard in self._heard.items() if now - heard[0] <= SILENT_S}
            self._heard[beat.process] = (now, beat, phones_answering([beat]))

    def beats(self, now: float) -> list[Heartbeat]:
        """The last heartbeat of every worker heard of within SILENT_S, by name."""
        return [beat for _, (at, beat, _) in sorted(self._heard.items()) if now - at <= SILENT_S]

    def phones(self, now: float) -> int:
        return sum(phones for at, _, phones in self._heard.values() if now - at <= SILENT_S)
