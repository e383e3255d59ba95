from __future__ import annotations

import factories
from distrl.broker.heartbeats import HeartbeatSender
from distrl.clock import Clock
from distrl.telemetry.monitor import SHOWN_S, Monitor, Reporter
from distrl.types import DeviceHealth, Heartbeat

STUCK_S = 60.0


class Ticks:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_process_is_not_alive_before_its_loop_begins_nor_once_it_makes_no_progress_for_long() -> None:
    ticks = Ticks()
    monitor = Monitor(Clock(lambda: 0.0, ticks))
    ticks.now += 7
    assert monitor.liveness(STUCK_S).why == "starting for 7 s: the main loop has not begun"
    monitor.progress()
    assert monitor.liveness(STUCK_S).ok
    ticks.now += STUCK_S
    assert monitor.liveness(STUCK_S).ok
    ticks.now += 1
    found = monitor.liveness(STUCK_S)
    assert not found.ok
    assert found.why == "stuck: the main loop made no progress for 61 s (monitoring.stuck_s 60)"
    monitor.progress()
    assert monitor.liveness(STUCK_S).ok


def test_a_process_is_ready_once_it_waits_for_nothing_and_may_wait_again() -> None:
    monitor = Monitor()
    assert (monitor.readiness().ok, monitor.readiness().why) == (False, "waiting for its start")
    monitor.ready()
    assert monitor.readiness().ok
    monitor.waits_for("a phone that answers")
    assert (monitor.readiness().ok, monitor.readiness().why) == (False, "waiting for a phone that answers")


def test_scrapes_are_given_new_figures_between_two_rare_heartbeats_and_both_are_the_same_figures() -> None:
    ticks, sent = Ticks(), list[Heartbeat]()
    clock = Clock(lambda: 0.0, ticks)
    monitor = Monitor(clock)
    reporter = Reporter(HeartbeatSender("w", "worker", 10 * SHOWN_S, sent.append, clock), monitor, clock)
    version, phone = factories.version(4), DeviceHealth("phone-0", "idle", {"leases": 3})
    shown = []
    for turn in range(11):
        assert reporter.due
        reporter.report(version, {"queue": float(turn)}, [phone], [0, 3])
        assert not reporter.due
        assert monitor.last is not None
        shown.append(monitor.last.metrics["queue"])
        ticks.now += SHOWN_S
    assert shown == [float(turn) for turn in range(11)]
    assert [beat.metrics for beat in sent] == [{"queue": 0.0}, {"queue": 10.0}]
    assert monitor.last is not None
    assert (monitor.last.version, monitor.last.devices) == (version, sent[-1].devices)
    assert monitor.last.metrics == {**sent[-1].metrics, "partitions": 2.0}


def test_a_report_at_once_is_sent_though_no_heartbeat_is_due() -> None:
    ticks, sent = Ticks(), list[Heartbeat]()
    clock = Clock(lambda: 0.0, ticks)
    reporter = Reporter(HeartbeatSender("l", "learner", 10.0, sent.append, clock), Monitor(clock), clock)
    for _ in range(3):
        reporter.report(None, {}, at_once=True)
    assert len(sent) == 3
