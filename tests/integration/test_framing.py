"""On a real broker, with a real registry that is as strict as registries are: to every reader of ours, values in
Confluent's wire format are what they would be without it, and the registry's own client reads them."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator

import apicurio
import factories
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.common.serde import SubjectNameStrategyType
from confluent_kafka.serialization import MessageField, SerializationContext
from distrl.broker import framing, topic_admin
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
from distrl.types import Heartbeat, Task, Update
from distrl.wire.cloud_events import event_headers
from distrl.wire.codec import decode, encode
from distrl.wire.confluent import FINGERPRINT
from distrl.wire.schemas import catalogue

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0


def client_of(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url, "timeout": PATIENCE_S})


@pytest.fixture(scope="module")
def schema_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where its Confluent interface is. It refuses a schema that an earlier one cannot read, or that cannot read it."""
    with apicurio.running(tmp_path_factory.mktemp("registry")) as url:
        client_of(url).set_compatibility(level="FULL_TRANSITIVE")
        yield url
    framing._registered.cache_clear()


@pytest.fixture
def plain(broker: str) -> Config:
    sets = [f"run=framed-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", "kafka.task_partitions=1"]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    return made


@pytest.fixture
def config(plain: Config, schema_registry: str) -> Config:
    """Of the same run, for who writes framed values."""
    kafka = plain.kafka.model_copy(update={"framing": "confluent", "schema_registry_url": schema_registry})
    return plain.model_copy(update={"kafka": kafka})


def read(config: Config, topic: str) -> list[RawRecord]:
    with LogReader(config, topic) as reader:
        return [raw for batch in reader.to_end() for raw in batch]


def first_sent(config: Config, topic: str) -> Message:
    """The first record as the broker has it."""
    consumer = Consumer({"bootstrap.servers": config.kafka.bootstrap, "group.id": "any", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic_name(config.run, topic), 0, 0)])
        message = consumer.poll(PATIENCE_S)
        assert message is not None
        assert message.error() is None
        return message
    finally:
        consumer.close()


def test_every_way_to_write_is_framed_and_reads_as_if_it_were_not(
    config: Config, plain: Config, schema_registry: str
) -> None:
    with TaskPublisher(config) as feeder:
        feeder.feed([(factories.task("t-0"), 0)], {0: 0}, threading.Event())
    with RecordProducer(config, "a-test") as producer:
        producer.publish("heartbeats", "worker-0", Heartbeat("worker-0", "worker", 7, None, None)).result(PATIENCE_S)
        producer.publish("trajectories", "t-0", factories.trajectory("t-0")).result(PATIENCE_S)
    with Journal(config) as journal:
        journal.append(Update(0, (), "config", 1))
        journal.publish_version(factories.version(0))
    # By topic: else it asks for the subjects of each topic, which Apicurio does not know and once left unanswered.
    by_topic = {"subject.name.strategy.type": SubjectNameStrategyType.TOPIC}
    deserialize = AvroDeserializer(client_of(schema_registry), conf=by_topic)
    for topic in ("tasks", "heartbeats", "trajectories", "updates", "versions"):
        kind = TOPICS[topic].record
        assert kind is not None
        sent = first_sent(plain, topic)
        value = sent.value()
        assert value is not None
        assert value[:1] == b"\0"
        assert FINGERPRINT in dict(sent.headers() or ())
        (raw,) = read(plain, topic)
        record = decoded(raw, kind)
        assert raw.value == encode(record), "what digests and copies see is what it would be unframed"
        assert raw.headers == event_headers(record, raw.value, plain.run, topic)[-len(raw.headers) :]
        datum = deserialize(value, SerializationContext(topic_name(plain.run, topic), MessageField.VALUE))
        assert isinstance(datum, dict)
        assert datum.keys() == set(type(record).__dataclass_fields__)


def test_all_versions_of_every_schema_are_in_the_registry_which_refuses_others(
    config: Config, schema_registry: str
) -> None:
    framing.sent_as(config.kafka)
    client = client_of(schema_registry)
    numbers: dict[str, int] = {}
    for schema in catalogue().by_fingerprint.values():
        numbers[schema.parsed["name"]] = numbers.get(schema.parsed["name"], 0) + 1
    assert {name: len(client.get_versions(name)) for name in client.get_subjects()} == numbers
    newest = json.loads(client.get_latest_version("distrl.Task").schema.schema_str or "")
    newest["fields"].append({"name": "more", "type": "string"})
    with pytest.raises(SchemaRegistryError):
        client.register_schema("distrl.Task", Schema(json.dumps(newest), "AVRO"))


def test_one_topic_may_hold_both_forms(config: Config, plain: Config) -> None:
    made = [factories.trajectory(f"t-{number}") for number in range(4)]
    for number, each in enumerate(made):
        with RecordProducer(config if number % 2 else plain, "a-test") as producer:
            producer.publish("trajectories", each.task_id, each).result(PATIENCE_S)
    assert [raw.value for raw in read(plain, "trajectories")] == [encode(each) for each in made]


def test_a_dead_letter_and_its_retry_come_back_to_the_byte(config: Config, plain: Config) -> None:
    """Whoever wrote which of them framed."""
    with RecordProducer(config, "a-test") as producer:
        producer.publish("tasks", "t-0", factories.task("t-0")).result(PATIENCE_S)
        (raw,) = read(plain, "tasks")
        letters = DeadLetters.of(config, producer)
        letters.put(raw, WireError("tasks", "as an older reader finds it", "upgrade"))
        assert producer.flush(PATIENCE_S) == 0
    (found,) = dead_letters_of(plain, entries(plain))
    assert (found.headers, found.raw.value) == (raw.headers, raw.value)
    retry([found], plain)
    _, again = read(config, "tasks")
    assert (again.key, again.value) == (raw.key, raw.value)
    assert again.headers[: len(raw.headers)] == raw.headers
    assert decode(again.value or b"", Task) == factories.task("t-0")
