"""The workers by their heartbeats: for how many tasks are outstanding, where they go, and for stall warnings. Pure.

No result depends on it: where tasks wait, and how many, changes when trajectories arrive, not what is learned from
them.
"""

from __future__ import annotations

from distrl.feeder.spread import Owner, owners_of
from distrl.telemetry.stalls import phones_answering
from distrl.types import Heartbeat

SILENT_S = 15.0
"""A worker without a heartbeat for longer no longer counts; several heartbeats must be lost for that."""

OWNERS_S = 1.0
"""How long who owns which partition is taken as known; workers say it every few seconds."""


class Fleet:
    """now: seconds of the feeder's own monotonic clock, so that no clock of a worker matters."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, Heartbeat, int]] = {}
        """By worker: when, its last heartbeat, and how many phones answer by it. Counted once a heartbeat: the feeder
        asks after each trajectory, and a fleet has thousands."""
        self._owners: list[Owner] | None = None
        self._partitions, self._renewed = 0, 0.0

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

    def owners(self, partitions: int, now: float) -> list[Owner]:
        """Who owns each of so many partitions, of the workers whose heartbeats say so; a partition is its that said so
        last. Renewed every OWNERS_S: the feeder asks with each task."""
        if self._owners is None or partitions != self._partitions or now >= self._renewed + OWNERS_S:
            self._partitions, self._renewed = partitions, now
            self._owners = owners_of(partitions, self._claimed(now))
        return self._owners

    def _claimed(self, now: float) -> list[Owner]:
        heard = sorted(self._heard.items(), key=lambda each: each[1][0])
        last: dict[int, str] = {}
        for name, (at, beat, _) in heard:
            if now - at <= SILENT_S and beat.partitions:
                last |= dict.fromkeys(beat.partitions, name)
        own: dict[str, list[int]] = {}
        for partition, name in sorted(last.items()):
            own.setdefault(name, []).append(partition)
        return [Owner(tuple(partitions), self._heard[name][2]) for name, partitions in own.items()]
