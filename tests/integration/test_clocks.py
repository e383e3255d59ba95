"""Who is alive is seen by the broker's clock, though that of the machine that asks is off."""

from __future__ import annotations

import time
import uuid

import pytest
from distrl.broker import topic_admin
from distrl.broker.producer import RecordProducer
from distrl.clock import Clock
from distrl.config import Config, load
from distrl.telemetry.feed import RunFeed
from distrl.telemetry.fleet import fleet_findings
from distrl.types import Heartbeat

pytestmark = pytest.mark.integration

OFF_S = 600.0


@pytest.fixture
def config(broker: str) -> Config:
    sets = [f"run=clocks-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", "worker.heartbeat_s=0.1"]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    return made


def beat(config: Config) -> None:
    with RecordProducer(config, "a-test") as producer:
        producer.publish("heartbeats", "w", Heartbeat("w", "worker", 0, None, None)).result(30)


def off_by(seconds: float) -> Clock:
    return Clock(now=lambda: time.time() + seconds)


def clock_of(config: Config, feed: RunFeed) -> list[str]:
    return [each.detail for each in fleet_findings(config, feed) if each.what == "clock" and not each.ok]


@pytest.mark.parametrize("off_s", [OFF_S, -OFF_S])
def test_a_worker_that_reports_is_alive_though_the_clock_of_who_asks_is_off(config: Config, off_s: float) -> None:
    worker = config.worker.model_copy(update={"heartbeat_s": 60.0})  # it is waited for no longer than one takes
    config = config.model_copy(update={"worker": worker})
    beat(config)
    with RunFeed(config, clock=off_by(off_s)) as feed:
        beat(config)
        feed.listen()
        assert [each.process for each in feed.status().heard()] == ["w"]
        (found,) = clock_of(config, feed)
    where = "ahead of" if off_s > 0 else "behind"
    assert found.endswith(f" s {where} the broker's")


def test_a_clock_that_is_behind_is_found_though_nobody_reports_any_more(config: Config) -> None:
    beat(config)
    with RunFeed(config, clock=off_by(-OFF_S)) as feed:
        feed.listen()
        assert len(clock_of(config, feed)) == 1


def test_a_run_that_nobody_works_at_is_silent_and_no_clock_is_blamed(config: Config) -> None:
    beat(config)
    with RunFeed(config, clock=off_by(OFF_S)) as feed:
        feed.listen()
        assert feed.status().silent == {"w"}
        assert clock_of(config, feed) == []


def test_a_clock_that_is_right_makes_no_finding(config: Config) -> None:
    beat(config)
    with RunFeed(config) as feed:
        feed.listen()
        assert clock_of(config, feed) == []
