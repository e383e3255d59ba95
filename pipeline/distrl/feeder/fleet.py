"""The workers, known by their heartbeats: decides how many tasks are outstanding, where they go, and stall warnings.
Pure.

No result depends on it: how many tasks wait, and where, changes when trajectories arrive, not what is learned from
them.
"""

from __future__ import annotations

from distrl.feeder.spread import Owner, owners_of
from distrl.telemetry.stalls import phones_answering
from distrl.types import Heartbeat

SILENT_S = 15.0
"""A worker without a heartbeat for longer than this no longer counts; it has then missed several."""

OWNERS_S = 1.0
"""How long the owners of the partitions are cached; workers report their partitions every few seconds."""


class Fleet:
    """now: seconds of the feeder's own monotonic clock, so that no clock of a worker matters."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[float, Heartbeat, int]] = {}
        """Worker -> (when its last heartbeat came, that heartbeat, how many phones answer according to it). The phones
        are counted once per heartbeat: the feeder asks after each trajectory, and a fleet has thousands of phones."""
        self._owners: list[Owner] | None = None
        self._partitions, self._renewed = 0, 0.0

    def see(self, beat: Heartbeat, now: float) -> None:
        if beat.role == "worker":
            if beat.process not in self._heard:  # drop silent ones: replaced pods never come back under their names
                self._heard = {name: heard for name, heard in self._heard.items() if now - heard[0] <= SILENT_S}
            self._heard[beat.process] = (now, beat, phones_answering([beat]))

    def beats(self, now: float) -> list[Heartbeat]:
        """The last heartbeat of every worker heard of within SILENT_S, by name."""
        return [beat for _, (at, beat, _) in sorted(self._heard.items()) if now - at <= SILENT_S]

    def phones(self, now: float) -> int:
        return sum(phones for at, _, phones in self._heard.values() if now - at <= SILENT_S)

    def owners(self, partitions: int, now: float) -> list[Owner]:
        """The owners of all `partitions`, according to the workers' heartbeats; if two workers report a partition, the
        later heartbeat counts. Cached for OWNERS_S, as the feeder asks with each task."""
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
