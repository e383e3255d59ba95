"""The workers by their heartbeats."""

from __future__ import annotations

from dataclasses import replace

from distrl.feeder.fleet import OWNERS_S, SILENT_S, Fleet
from distrl.feeder.spread import Owner
from distrl.types import DeviceHealth, Heartbeat


def beat(process: str, role: str = "worker") -> Heartbeat:
    return Heartbeat(process, role, 0, None, None, devices=(DeviceHealth("phone", "idle"),))


def test_who_was_not_heard_of_for_long_counts_no_longer() -> None:
    fleet = Fleet()
    fleet.see(beat("a"), 0.0)
    fleet.see(beat("b"), 5.0)
    fleet.see(beat("the learner", "learner"), 5.0)
    assert (fleet.phones(5.0), fleet.phones(SILENT_S + 1), fleet.phones(SILENT_S + 6)) == (2, 1, 0)
    assert [each.process for each in fleet.beats(5.0)] == ["a", "b"]


def test_workers_that_come_and_go_for_weeks_leave_nothing_behind() -> None:
    """Each rollout of a Deployment names its pods anew."""
    fleet = Fleet()
    for pod in range(1000):
        for second in range(3):
            fleet.see(beat(f"worker-{pod}"), pod * 100.0 + second)
    assert len(fleet._heard) == 1
    assert fleet.phones(999 * 100.0 + 3) == 1


def test_a_partition_is_of_the_worker_that_said_so_last_and_of_nobody_where_that_is_silent() -> None:
    fleet = Fleet()
    assert fleet.owners(4, 0.0) == [Owner((0, 1, 2, 3), 4)]
    fleet.see(replace(beat("a"), partitions=(0, 1, 2)), 1.0)
    fleet.see(replace(beat("b"), partitions=(2, 3)), 2.0)
    fleet.see(beat("an older one, which does not say"), 2.0)
    assert fleet.owners(4, 2.0) == [Owner((0, 1), 1), Owner((2, 3), 1)]
    fleet.see(replace(beat("a"), partitions=(2,)), 2.0 + OWNERS_S / 2)
    assert fleet.owners(4, 2.0 + OWNERS_S / 2) == [Owner((0, 1), 1), Owner((2, 3), 1)], "not asked anew for each task"
    later = 2.0 + OWNERS_S
    assert fleet.owners(4, later) == [Owner((0, 1), 2), Owner((2,), 1), Owner((3,), 1)], "0 and 1 are nobody's"
    assert fleet.owners(5, later) == [Owner((0, 1, 4), 3), Owner((2,), 1), Owner((3,), 1)], "the topic has grown"
    assert fleet.owners(4, SILENT_S + 2.2) == [Owner((0, 1, 3), 3), Owner((2,), 1)]
