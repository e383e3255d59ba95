"""The workers by their heartbeats."""

from __future__ import annotations

from distrl.feeder.fleet import SILENT_S, Fleet
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
