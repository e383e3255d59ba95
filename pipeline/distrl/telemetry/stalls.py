"""Detects stalls: outstanding tasks and no new trajectory but interrupted ones, and who holds the tasks. Pure.

Names in heartbeats are untrusted: in texts for people their controls are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from distrl.text import printable, ranges
from distrl.types import Heartbeat

STALLED_S = 60.0
"""Without a trajectory for this long, with tasks outstanding, the run is stalled. An episode takes seconds on a
simulated phone and about a minute on a slow real one."""

ANSWERING = frozenset({"idle", "leased"})
"""States of a phone that its worker can use."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A worker by its last heartbeat. tasks: outstanding ones in its partitions.

    answering, phones: how many of its phones it can use, and has.
    """

    worker: str
    partitions: tuple[int, ...]
    tasks: int
    answering: int
    phones: int

    def __str__(self) -> str:
        where = f"in partitions {ranges(self.partitions)}" if self.partitions else "and owns no partition"
        return (
            f"{printable(self.worker)} holds {self.tasks} {where}, {self.answering} of its {self.phones} phones answer"
        )


def phones_answering(beats: Iterable[Heartbeat]) -> int:
    """Phones that answer, of all workers. beats: the last one of each process that is not silent."""
    return sum(device.state in ANSWERING for beat in beats if beat.role == "worker" for device in beat.devices)


def holders(loads: Mapping[int, int], beats: Iterable[Heartbeat]) -> list[Holder]:
    """Every worker, most tasks first. loads: outstanding tasks by partition; beats: as in `phones_answering`."""
    found = [
        Holder(
            beat.process,
            beat.partitions or (),
            sum(loads.get(partition, 0) for partition in beat.partitions or ()),
            sum(device.state in ANSWERING for device in beat.devices),
            len(beat.devices),
        )
        for beat in beats
        if beat.role == "worker"
    ]
    return sorted(found, key=lambda each: (-each.tasks, each.worker))


def stalled(quiet_s: float, loads: Mapping[int, int], beats: Iterable[Heartbeat]) -> str | None:
    """The warning; None while trajectories come, or nothing is outstanding.

    quiet_s: since the last trajectory that was not interrupted, or since a task is outstanding, whichever is less.
    """
    outstanding = sum(loads.values())
    if not outstanding or quiet_s < STALLED_S:
        return None
    who = holders(loads, beats)
    owned = {partition for each in who for partition in each.partitions}
    free = {partition: count for partition, count in loads.items() if count and partition not in owned}
    words = [str(each) for each in who] or ["no worker reports"]
    if free:
        words.append(f"nobody reports to hold {sum(free.values())} in partitions {ranges(sorted(free))}")
    return (
        f"no trajectory has come for {quiet_s:.0f} s, or interrupted ones alone, though {outstanding} tasks are "
        f"outstanding: {'; '.join(words)}"
    )


STALLED_HINT = "see `distrl devices` for the phones, and the log of the worker that holds the tasks"


def limits(
    setting: int | None, most: int, outstanding: int, phones: int, partitions: int, beats: Iterable[Heartbeat]
) -> list[tuple[str, bool, str, str]]:
    """The two limits of a fleet as (name, whether it suffices, the facts, a hint).

    setting, most: feeder.outstanding, and the resulting number; partitions: of the tasks topic.
    """
    workers = [beat for beat in beats if beat.role == "worker" and beat.partitions is not None]
    without = sorted(printable(beat.process) for beat in workers if not beat.partitions and phones_answering([beat]))
    follows = "follows the phones" if setting is None else "is set"
    idle = f"; {', '.join(without)} own none, and their phones get no task" if without else ""
    enough = 2 * len(workers)
    hint = (
        f"set kafka.task_partitions to {enough} or more and run `distrl topics ensure --alter`, or give fewer workers "
        "more phones each"
        if partitions < enough
        else "there are enough for every worker: look again in a minute, as a worker that has just joined owns none; "
        "if that stays so, see its log"
    )
    return [
        (
            "feeder.outstanding",
            most >= phones,
            f"{outstanding} tasks outstanding of at most {most} ({follows}), {phones} phones answer",
            f"raise feeder.outstanding to {2 * phones} or more, or leave it unset",
        ),
        (
            "kafka.task_partitions",
            not without,
            f"{partitions} partitions for {len(workers)} workers{idle}",
            hint,
        ),
    ]
