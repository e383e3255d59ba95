"""Waiting for topics that others make; with a real broker in tests/integration/test_cli.py."""

from __future__ import annotations

import pytest
import tenacity
from distrl.broker import wait
from distrl.broker.wait import wait_for_topics
from distrl.config import load
from distrl.errors import BrokerError


class Clock:
    """In place of the module `time` where attempts are repeated: only its pauses take time."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_without_a_broker_it_says_once_what_it_waits_for_and_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load(sets=["kafka.bootstrap=127.0.0.1:1", "kafka.connect_timeout_s=0.1"], environ={})
    reported, clock = list[str](), Clock()
    monkeypatch.setattr(tenacity, "time", clock)
    monkeypatch.setattr(tenacity.nap, "time", clock)
    with pytest.raises(BrokerError, match=r"no answer within 0\.1 s"):
        wait_for_topics(config, ["tasks"], 2.0, reported.append)
    assert 2.0 <= clock.now - Clock.now < 2.0 + wait.PAUSE_S
    assert [line.partition(":")[0] for line in reported] == ["kafka.bootstrap"]
