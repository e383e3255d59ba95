"""What a broker's acknowledgement may lack, and what becomes of a role whose acknowledgements end."""

from __future__ import annotations

import threading
import uuid

import pytest
from distrl.broker import producer as producer_module
from distrl.broker import topic_admin
from distrl.broker.connect import BeyondUseError
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.config import Config, load
from distrl.errors import BrokerError
from distrl.feeder.run import run_feeder
from distrl.types import Heartbeat, Update, Watermark
from faults.proxy import Proxy, behind
from journals import updates_of

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
BEAT = Heartbeat("worker-0", "worker", 0, None, None)


@pytest.fixture
def config(broker: str) -> Config:
    run = f"acknowledged-{uuid.uuid4().hex[:10]}"
    made = load(sets=[f"run={run}", f"kafka.bootstrap={broker}", "kafka.task_partitions=3"], environ={})
    topic_admin.ensure(made)
    return made


def test_a_record_whose_place_the_broker_does_not_tell_is_acknowledged_and_those_after_it_are(
    config: Config, proxy: Proxy
) -> None:
    proxy.forget_places(topic_name(config.run, "heartbeats").encode())
    with RecordProducer(behind(proxy, config), "a-test") as producer:
        for _ in range(3):
            assert producer.publish("heartbeats", "worker-0", BEAT).result(PATIENCE_S) is None
        told = producer.publish("trajectories.dlq", "k", BEAT).result(PATIENCE_S)
        assert told is not None
        assert (told.offset, producer.waiting) == (0, 0)
    with LogReader(config, "heartbeats") as reader:
        assert sum(len(batch) for batch in reader.to_end()) == 3


def test_a_journal_whose_place_the_broker_does_not_tell_goes_on(config: Config, proxy: Proxy) -> None:
    proxy.forget_places(topic_name(config.run, "updates").encode())
    updates = [Update(u, (Watermark("t", 0, u),), "f" * 64, 1_000 + u) for u in range(2)]
    with Journal(behind(proxy, config)) as journal:
        assert [journal.append(update) for update in updates] == [None, None]
    assert updates_of(config, 2) == updates


def test_an_acknowledgement_that_is_not_understood_fails_its_record_alone(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RecordProducer(config, "a-test") as producer:
        with monkeypatch.context() as patched:
            patched.setattr(producer_module, "position_or_none", lambda message: 1 // 0)
            with pytest.raises(
                BrokerError, match=r"heartbeats: cannot handle the acknowledgement of a record: ZeroDivisionError"
            ):
                producer.publish("heartbeats", "worker-0", BEAT).result(PATIENCE_S)
        assert producer.publish("heartbeats", "worker-0", BEAT).result(PATIENCE_S) is not None


def test_a_feeder_whose_acknowledgements_end_unexpectedly_ends_with_the_reason(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RecordProducer, "_serve", lambda self: 1 // 0)
    with pytest.raises(BeyondUseError, match=r"thread that serves them has ended: ZeroDivisionError"):
        run_feeder(config, threading.Event())
