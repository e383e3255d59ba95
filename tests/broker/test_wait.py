"""Waiting for topics that others make; with a real broker in tests/integration/test_cli.py."""

from __future__ import annotations

import time

import pytest
from distrl.broker.wait import wait_for_topics
from distrl.config import load
from distrl.errors import BrokerError


def test_without_a_broker_it_says_once_what_it_waits_for_and_ends_in_time() -> None:
    config = load(sets=["kafka.bootstrap=127.0.0.1:1", "kafka.connect_timeout_s=0.1"], environ={})
    reported: list[str] = []
    began = time.monotonic()
    with pytest.raises(BrokerError, match=r"no answer within 0\.1 s"):
        wait_for_topics(config, ["tasks"], 2.0, reported.append)
    assert 2.0 <= time.monotonic() - began < 30.0
    assert [line.partition(":")[0] for line in reported] == ["kafka.bootstrap"]
