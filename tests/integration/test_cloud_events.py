"""On a real broker: every way to write a record gives it its CloudEvents headers, and whoever copies it keeps them."""

from __future__ import annotations

import threading
import uuid

import factories
import pytest
from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from distrl.broker import claims, topic_admin
from distrl.broker.dead_letter_log import dead_letters_of, entries
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.republish import retry
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config, load
from distrl.errors import WireError
from distrl.feeder.publish import TaskPublisher
from distrl.types import Heartbeat, ObjectRef, Task, Update
from distrl.wire.cloud_events import HEADERS, event_headers
from distrl.wire.codec import decode, encode

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
TRACE = (("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)


@pytest.fixture
def config(broker: str) -> Config:
    sets = [f"run=events-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", "kafka.task_partitions=1"]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    return made


def read(config: Config, topic: str) -> list[RawRecord]:
    with LogReader(config, topic) as reader:
        return [raw for batch in reader.to_end() for raw in batch]


def test_every_way_to_write_a_record_describes_it_as_an_event(config: Config) -> None:
    with TaskPublisher(config) as feeder:  # claims its role first
        feeder.feed([(factories.task("t-0"), 0)], {0: 0}, threading.Event())
    with RecordProducer(config, "a-test") as producer:
        beat = Heartbeat("worker-0", "worker", 7, None, None)
        producer.publish("heartbeats", "worker-0", beat, TRACE).result(PATIENCE_S)
    with Journal(config) as journal:
        journal.append(Update(0, (), "config", 1))
        journal.publish_version(factories.version(0, adapter=ObjectRef("adapters/0", "a" * 64, 1)))
    for topic in ("tasks", "feeder.claims", "heartbeats", "updates", "versions"):
        (raw,) = read(config, topic)
        kind = TOPICS[topic].record
        assert kind is not None
        record = decoded(raw, kind)
        assert raw.value == encode(record), "the value is untouched"
        assert raw.headers[-len(HEADERS) :] == event_headers(record, raw.value, config.run, topic)
        event = from_binary(KafkaMessage(dict(raw.headers), raw.key, raw.value), JSONFormat())
        assert (event.get_type(), event.get_data()) == (f"distrl.{kind.__name__}", raw.value)
    (claimed,), (beaten,) = read(config, "feeder.claims"), read(config, "heartbeats")
    assert claims.HEADER in dict(claimed.headers)
    assert beaten.headers[:1] == TRACE


def test_a_record_of_earlier_software_reads_as_before(config: Config) -> None:
    task, name = factories.task("t-0"), topic_name(config.run, "tasks")
    with RecordProducer(config, "a-test") as producer:
        producer.publish_bytes(name, b"t-0", encode(task)).result(PATIENCE_S)
        producer.publish("tasks", "t-0", task).result(PATIENCE_S)
    old, new = read(config, "tasks")
    assert (old.headers, old.value) == ((), new.value)
    assert decoded(old, Task) == decoded(new, Task) == task


def test_a_dead_letter_and_its_retry_are_still_the_event_that_they_were(config: Config) -> None:
    with RecordProducer(config, "a-test") as producer:
        producer.publish("tasks", "t-0", factories.task("t-0"), TRACE).result(PATIENCE_S)
        (raw,) = read(config, "tasks")
        letters = DeadLetters.of(config, producer)
        letters.put(raw, WireError("tasks", "as an older reader finds it", "upgrade"))
        assert producer.flush(PATIENCE_S) == 0
    (found,) = dead_letters_of(config, entries(config))
    assert found.headers == raw.headers
    retry([found], config)
    _, again = read(config, "tasks")
    assert again.headers[: len(raw.headers)] == raw.headers
    assert (again.key, again.value) == (raw.key, raw.value)
    assert decode(again.value or b"", Task) == factories.task("t-0")
