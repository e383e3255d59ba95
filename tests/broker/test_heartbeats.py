from __future__ import annotations

import logging
from concurrent.futures import Future

import factories
import pytest
from distrl.broker.connect import BeyondUseError
from distrl.broker.heartbeats import MOST_WAITING, HeartbeatSender
from distrl.clock import Clock
from distrl.errors import BrokerError
from distrl.types import DeviceHealth, Heartbeat, ObjectRef

VERSION = factories.version(4, adapter=ObjectRef("adapters/a", "a" * 64, 1))
PHONES = (DeviceHealth("phone-0", "ready", {}),)


class Ticks:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_heartbeat_says_who_it_is_and_what_it_uses_and_the_next_is_due_after_a_while() -> None:
    sent: list[Heartbeat] = []
    ticks = Ticks()
    sender = HeartbeatSender("worker-0", "worker", 2.0, sent.append, Clock(lambda: 7.0, ticks))
    assert sender.due
    sender.send(None, {"queue": 1.0})
    assert not sender.due
    ticks.now += 2.0
    assert sender.due
    sender.send(VERSION, {}, PHONES, [0, 3])
    assert sent == [
        Heartbeat("worker-0", "worker", 7_000, None, None, {"queue": 1.0}),
        Heartbeat("worker-0", "worker", 7_000, 4, "a" * 64, {}, PHONES, (0, 3)),
    ]


def test_heartbeats_that_are_not_acknowledged_leave_the_queue_to_trajectories() -> None:
    """They filled it where their partition alone could not be written, and all phones stood still."""
    sent: list[Future[None]] = []

    def publish(beat: Heartbeat) -> Future[None]:
        sent.append(Future())
        return sent[-1]

    sender = HeartbeatSender("worker-0", "worker", 2.0, publish)
    for _ in range(3 * MOST_WAITING):
        sender.send(None, {})
    assert len(sent) == MOST_WAITING
    sent[0].set_result(None)
    sent[1].set_exception(BrokerError("heartbeats", "is not written", "wait"))
    for _ in range(5):
        sender.send(None, {})
    assert len(sent) == MOST_WAITING + 2


def test_a_broker_that_is_away_ends_nobody_and_a_client_beyond_use_does(caplog: pytest.LogCaptureFixture) -> None:
    errors = [BrokerError("kafka.bootstrap", "no room", "wait"), BeyondUseError("run r", "fenced", "start again")]

    def publish(beat: Heartbeat) -> None:
        raise errors.pop(0)

    sender = HeartbeatSender("feeder", "feeder", 2.0, publish)
    with caplog.at_level(logging.WARNING):
        sender.send(None, {})
    assert "heartbeat not sent: no room" in caplog.text
    assert not sender.due
    with pytest.raises(BeyondUseError):
        sender.send(None, {})
