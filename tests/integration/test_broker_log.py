"""Topics, readers, versions and the journal on a real broker."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import factories
import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from distrl.broker import reader, topic_admin
from distrl.broker.client_settings import Settings
from distrl.broker.connect import METADATA_S, UnknownTopicError, admin, check, settings
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.fenced import FencedError
from distrl.broker.journal import Journal, journal_lines
from distrl.broker.producer import RecordProducer, RecordTooLargeError
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.tail import tail
from distrl.broker.topics import TOPICS, topic_name
from distrl.broker.versions import VersionFollower, lineage
from distrl.config import Config, KafkaSettings, load
from distrl.errors import BrokerError, WireError
from distrl.types import Heartbeat, LogPosition, ObjectRef, Update, Version, Watermark
from distrl.wire.codec import encode
from waiting import until

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
GRACE_S = 10.0
"""What a busy machine may add to a deadline."""
NOISE = random.Random(0)  # bytes that zstd cannot make smaller


def fresh(broker: str, *sets: str) -> Config:
    """Settings of a run that nobody has used yet, without its topics."""
    run = f"log-{uuid.uuid4().hex[:12]}"
    return load(sets=[f"run={run}", f"kafka.bootstrap={broker}", "kafka.task_partitions=3", *sets], environ={})


@pytest.fixture
def config(broker: str) -> Config:
    made = fresh(broker)
    topic_admin.ensure(made)
    return made


@pytest.fixture
def producer(config: Config) -> Iterator[RecordProducer]:
    with RecordProducer(config, "a-test") as made:
        yield made


def beat(number: int) -> Heartbeat:
    return Heartbeat("worker-0", "worker", number, None, None)


def version(number: int) -> Version:
    return factories.version(number, adapter=ObjectRef(f"adapters/{number}", "a" * 64, 1))


def update(u: int) -> Update:
    return Update(u, (Watermark("distrl.r.trajectories", 0, 16 * u),), "config", 1_000 + u)


def publish(producer: RecordProducer, numbers: range) -> list[LogPosition]:
    futures = [producer.publish("heartbeats", str(n), beat(n)) for n in numbers]
    return [future.result(PATIENCE_S) for future in futures]


def times(batches: list[list[RawRecord]]) -> list[int]:
    return [decoded(raw, Heartbeat).at for batch in batches for raw in batch]


# Topics


def test_the_broker_answers(broker: str) -> None:
    found = check(fresh(broker))
    assert found.brokers == 1
    assert found.cluster_id


def test_topics_are_made_once_and_found_as_declared_afterwards(broker: str) -> None:
    config = fresh(broker)
    with pytest.raises(BrokerError, match=rf"distrl\.{config.run}\.tasks, .*missing at the broker"):
        topic_admin.ensure(config, create=False)
    assert {row.differences for row in topic_admin.describe(config)} == {"missing"}
    assert {report.action for report in topic_admin.ensure(config)} == {"created"}
    assert {report.action for report in topic_admin.ensure(config, create=False)} == {"kept"}
    rows = topic_admin.describe(config)
    assert [row.name for row in rows] == list(TOPICS)
    assert [row.partitions for row in rows] == [3, *[1] * (len(TOPICS) - 1)]
    assert {row.differences for row in rows} == {""}


def test_partitions_that_are_added_are_used_by_a_producer_that_lives(config: Config, producer: RecordProducer) -> None:
    name = topic_name(config.run, "tasks")
    for key in range(20):
        producer.publish_bytes(name, b"%d" % key, b"").result(PATIENCE_S)
    more = config.model_copy(update={"kafka": config.kafka.model_copy(update={"task_partitions": 6})})
    topic_admin.ensure(more, alter=True)
    used, deadline = set[int](), time.monotonic() + METADATA_S + GRACE_S
    while used < {3, 4, 5} and time.monotonic() < deadline:
        futures = [producer.publish_bytes(name, b"%d" % key, b"") for key in range(20)]
        used |= {at.partition for future in futures if (at := future.result(PATIENCE_S))} - {0, 1, 2}
        time.sleep(0.2)
    assert used == {3, 4, 5}


def test_a_reader_tells_of_no_coordinator_as_it_joins_no_group(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    with LogReader(config, "heartbeats") as reader:
        reader._on_error(KafkaError(KafkaError._TRANSPORT, "GroupCoordinator: 127.0.0.1:1: Connection refused"))
        assert caplog.records == []
        reader._on_error(KafkaError(KafkaError._TRANSPORT, "127.0.0.1:1/2: Connection refused"))
        assert [record.getMessage() for record in caplog.records] == [
            f"reading distrl.{config.run}.heartbeats: 127.0.0.1:1/2: Connection refused"
        ]


def test_copies_that_are_missing_are_reported_and_never_called_altered(
    config: Config, producer: RecordProducer
) -> None:
    three = config.model_copy(update={"kafka": config.kafka.model_copy(update={"replication_factor": 3})})
    with pytest.raises(BrokerError, match="updates: replication factor is 1, declared is 3"):
        topic_admin.ensure(three)
    assert {row.copies for row in topic_admin.describe(three)} == {1}
    assert all("replication factor is 1, declared is 3" in row.differences for row in topic_admin.describe(three))
    with pytest.raises(BrokerError, match="3 replicas need as many brokers, and the cluster has 1"):
        topic_admin.ensure(three, alter=True)
    assert publish(producer, range(1)), "it asks for no more copies in sync than there are: records are taken"
    assert {report.action for report in topic_admin.ensure(config)} == {"kept"}


def test_two_processes_may_ensure_the_topics_at_once(broker: str) -> None:
    config = fresh(broker)
    failures: list[Exception] = []

    def ensure() -> None:
        try:
            topic_admin.ensure(config)
        except BrokerError as error:
            failures.append(error)

    threads = [threading.Thread(target=ensure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_topic_with_other_settings_is_reported_and_altered_when_asked(config: Config) -> None:
    client = admin(config.kafka)
    name = topic_name(config.run, "trajectories")
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
    client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    more_tasks = config.model_copy(update={"kafka": config.kafka.model_copy(update={"task_partitions": 5})})

    with pytest.raises(BrokerError) as told:
        topic_admin.ensure(more_tasks)
    assert f"{name}: retention.ms is 60000, declared is -1" in str(told.value)
    assert f"distrl.{config.run}.tasks: partitions is 3, declared is 5" in str(told.value)
    assert "distrl topics ensure --alter" in told.value.hint
    assert [row.name for row in topic_admin.describe(more_tasks) if row.differences] == ["tasks", "trajectories"]

    altered = topic_admin.ensure(more_tasks, alter=True)
    assert {report.topic for report in altered if report.action == "altered"} == {name, f"distrl.{config.run}.tasks"}
    assert topic_admin.ensure(more_tasks)[0].partitions == 5
    with pytest.raises(BrokerError, match=r"set kafka\.task_partitions to 5; Kafka cannot remove partitions"):
        topic_admin.ensure(config, alter=True)


# Writing and reading


def test_records_come_in_the_order_they_were_published(config: Config, producer: RecordProducer) -> None:
    positions = publish(producer, range(2_000))
    assert [position.offset for position in positions] == list(range(2_000))
    with LogReader(config, "heartbeats") as reader:
        assert times(list(reader.to_end())) == list(range(2_000))
        assert reader.next_offsets == {0: 2_000}
    with LogReader(config, "heartbeats", start={0: 1_990}) as reader:
        assert times(list(reader.to_end())) == list(range(1_990, 2_000))
    with LogReader(config, "heartbeats", start={0: 2_000}) as reader:
        assert list(reader.to_end()) == []


def test_a_bounded_read_ends_although_records_keep_coming_and_following_goes_on(
    config: Config, producer: RecordProducer
) -> None:
    publish(producer, range(100))
    stop = threading.Event()

    def keep_publishing() -> None:
        number = 100
        while not stop.is_set():
            producer.publish("heartbeats", "k", beat(number)).result(PATIENCE_S)
            number += 1

    writer = threading.Thread(target=keep_publishing)
    with LogReader(config, "heartbeats") as reader:
        writer.start()
        seen = times(list(reader.to_end(most=10)))
        assert 100 <= len(seen) < 300
        deadline = time.monotonic() + PATIENCE_S
        while len(seen) < 300:
            assert time.monotonic() < deadline
            seen += times([reader.read(1.0)])
        stop.set()
        writer.join()
    assert seen == list(range(len(seen)))


def test_a_record_is_read_as_soon_as_it_is_there(config: Config, producer: RecordProducer) -> None:
    with LogReader(config, "heartbeats") as reader:
        publish(producer, range(1))
        assert times([reader.read(PATIENCE_S)]) == [0]
        started = time.monotonic()
        publish(producer, range(1, 2))
        assert times([reader.read(PATIENCE_S)]) == [1]
        assert time.monotonic() - started < PATIENCE_S / 2
        assert reader.read(0.01) == []


def test_a_start_outside_of_what_is_kept_is_refused(config: Config, producer: RecordProducer) -> None:
    publish(producer, range(10))
    name = topic_name(config.run, "heartbeats")
    with pytest.raises(BrokerError, match=r"record 11 is needed, but the log ends at 10"):
        LogReader(config, "heartbeats", start={0: 11})
    with pytest.raises(BrokerError, match="no such partition"):
        LogReader(config, "heartbeats", start={1: 0})
    place = TopicPartition(name, 0, 4)
    client = admin(config.kafka)
    client.delete_records([place])[place].result(PATIENCE_S)
    with pytest.raises(BrokerError, match=r"record 3 is needed, but retention has deleted all before 4") as told:
        LogReader(config, "heartbeats", start={0: 3})
    assert "retention.ms" in told.value.hint
    with LogReader(config, "heartbeats") as reader:
        assert times(list(reader.to_end())) == list(range(4, 10))


def test_records_deleted_under_a_reader_are_an_error_and_no_gap(config: Config, producer: RecordProducer) -> None:
    publish(producer, range(10))
    with LogReader(config, "heartbeats", start={0: 10}) as ahead:
        assert ahead.read(0.2) == []
    with LogReader(config, "heartbeats", start={0: 2}) as reader:
        reader._consumer.pause([TopicPartition(topic_name(config.run, "heartbeats"), 0)])  # not fetched yet
        reader.read(0.1)
        place = TopicPartition(topic_name(config.run, "heartbeats"), 0, 5)
        client = admin(config.kafka)
        client.delete_records([place])[place].result(PATIENCE_S)
        reader._consumer.resume([TopicPartition(place.topic, 0)])
        with pytest.raises(BrokerError, match="retention has deleted all before 5"):
            list(reader.to_end())


def test_a_topic_that_is_missing_is_reported(broker: str) -> None:
    with pytest.raises(BrokerError, match="distrl topics ensure"):
        LogReader(fresh(broker), "versions")


def test_a_record_that_the_broker_itself_refuses_fails_its_future(config: Config) -> None:
    client = admin(config.kafka)
    name = f"small-{config.run}"
    client.create_topics([NewTopic(name, 1, 1, config={"max.message.bytes": "2000"})])[name].result(PATIENCE_S)
    with RecordProducer(config, "a-test") as producer:
        refused = producer.publish_bytes(name, b"k", NOISE.randbytes(20_000))
        with pytest.raises(BrokerError, match=f"{name}: the broker refuses as too large a record"):
            refused.result(PATIENCE_S)


def test_the_largest_record_that_is_allowed_passes_every_limit(config: Config, producer: RecordProducer) -> None:
    noise = NOISE.randbytes(config.kafka.max_record_bytes - 1)
    name = topic_name(config.run, "trajectories")
    origin = producer.publish_bytes(name, b"k", noise).result(PATIENCE_S)
    letters = DeadLetters.of(config, producer)
    letters.put(RawRecord(origin, b"k", noise, 0), WireError("record", "x" * 4_000, ""))
    assert producer.flush(PATIENCE_S) == 0
    assert letters.settled() == [origin]
    with LogReader(config, "trajectories.dlq") as reader:
        ((letter,),) = list(reader.to_end())
    assert letter.value == noise


def test_tail_shows_the_last_records_and_skips_what_it_cannot_read(config: Config, producer: RecordProducer) -> None:
    publish(producer, range(5))
    producer.publish_bytes(topic_name(config.run, "heartbeats"), None, b"garbage").result(PATIENCE_S)
    publish(producer, range(6, 8))
    shown = list(tail(config, "heartbeats", Heartbeat, last=4, follow=False, stop=threading.Event()))
    assert [(position.offset, record.at) for position, record in shown] == [(4, 4), (6, 6), (7, 7)]


def test_a_record_that_is_too_large_for_its_topic_fails_alone(config: Config, producer: RecordProducer) -> None:
    """The broker refuses its whole batch, which all of these are in."""
    name = topic_name(config.run, "heartbeats")
    resource = ConfigResource(
        ResourceType.TOPIC,
        name,
        incremental_configs=[ConfigEntry("max.message.bytes", "900", incremental_operation=AlterConfigOpType.SET)],
    )
    client = admin(config.kafka)
    client.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    taken = until_refused(producer, name)
    rule = random.Random(0)
    values = [rule.randbytes(2_000 if number in (3, 11) else 20) for number in range(16)]
    futures = [producer.publish_bytes(name, b"k", value) for value in values]
    for number, future in enumerate(futures):
        if number in (3, 11):
            with pytest.raises(RecordTooLargeError, match="the broker refuses as too large a record"):
                future.result(PATIENCE_S)
        else:
            future.result(PATIENCE_S)
    assert producer.waiting == 0
    with LogReader(config, "heartbeats") as reader:
        found = [raw.value for batch in reader.to_end() for raw in batch]
    assert sorted(found[taken:]) == sorted(value for value in values if len(value) == 20), "each once"
    assert producer.publish_bytes(name, b"k", b"later").result(PATIENCE_S).offset == len(found)


def until_refused(producer: RecordProducer, name: str) -> int:
    """Writes large records until the broker, which applies a topic's new setting a moment after it has acknowledged
    it, refuses one. Returns how many it has taken."""
    deadline, taken = time.monotonic() + PATIENCE_S, 0
    while time.monotonic() < deadline:
        try:
            producer.publish_bytes(name, b"k", NOISE.randbytes(2_000)).result(PATIENCE_S)
        except RecordTooLargeError:
            return taken
        taken += 1
    raise AssertionError("the topic's setting is not applied")


# The journal and the versions


def test_what_is_journalled_is_read_back_in_order(config: Config) -> None:
    with Journal(config) as journal:
        assert journal_lines(config) == []
        for u in range(1, 6):
            journal.append(update(u))
    with Journal(config):
        assert journal_lines(config) == [update(u) for u in range(1, 6)]


def test_an_older_learner_is_fenced_and_publishes_nothing(config: Config) -> None:
    older, newer = Journal(config), Journal(config)
    older.open()
    older.append(update(1))
    newer.open()
    with VersionFollower(config) as follower:
        for attempt in (lambda: older.publish_version(version(9)), lambda: older.append(update(2))):
            with pytest.raises(FencedError, match="another learner opened its own"):
                attempt()
        newer.append(update(2))
        newer.publish_version(version(1))
        seen = follower.wait_newer(None, PATIENCE_S)
    assert seen == version(1)
    assert journal_lines(config) == [update(1), update(2)]
    assert lineage(config) == [version(1)]


def test_what_a_killed_learner_left_half_written_is_never_seen(config: Config) -> None:
    made = settings(config.kafka, "killed", {"transactional.id": f"distrl.{config.run}.learner"})
    killed = Producer(made)
    killed.init_transactions(PATIENCE_S)
    killed.begin_transaction()
    killed.produce(topic_name(config.run, "versions"), key=b"7", value=encode(version(7)))
    killed.produce(topic_name(config.run, "updates"), key=b"run", value=encode(update(7)))
    assert killed.flush(PATIENCE_S) == 0  # in the log, and not committed

    with VersionFollower(config) as follower:
        assert follower.latest() is None
        with Journal(config) as journal:
            assert journal_lines(config) == []
            journal.publish_version(version(2))
            assert follower.wait_newer(None, PATIENCE_S) == version(2)
    assert lineage(config) == [version(2)]


def test_the_highest_version_wins_whatever_the_order(config: Config) -> None:
    with Journal(config) as journal:
        for number in (3, 5, 4):
            journal.publish_version(version(number))
        with VersionFollower(config) as follower:
            assert follower.latest() == version(5)
            assert follower.wait_newer(5, 0.05) is None
            journal.publish_version(version(2))
            rollback = replace(version(6), adapter=version(3).adapter)
            journal.publish_version(rollback)
            assert follower.wait_newer(5, PATIENCE_S) == rollback
            assert follower.latest() == rollback
    assert [found.version for found in lineage(config)] == [2, 3, 4, 5, 6]


def test_every_waiter_wakes_for_a_version_and_when_the_follower_closes(config: Config) -> None:
    with Journal(config) as journal, VersionFollower(config) as follower:
        woken: list[Version | None] = []
        waiters = [threading.Thread(target=lambda: woken.append(follower.wait_newer(0, 600))) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        journal.publish_version(version(1))
        for waiter in waiters:
            waiter.join(PATIENCE_S)
        assert woken == [version(1)] * 3
        idle = threading.Thread(target=lambda: woken.append(follower.wait_newer(1, 600)))
        idle.start()
        follower.close()
        idle.join(PATIENCE_S)
        assert woken[3:] == [None]


def test_a_follower_asks_the_broker_seldom_while_no_version_comes(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetches: dict[str, list[tuple[float, int]]] = {}

    def counted(text: str) -> None:
        found = json.loads(text)
        asked = sum(each["req"].get("Fetch", 0) for each in found["brokers"].values())
        fetches.setdefault(found["name"], []).append((found["ts"] / 1e6, asked))

    def watched(kafka: KafkaSettings, client_id: str, own: Mapping[str, object], *more: Any) -> Settings:
        return settings(kafka, client_id, {**own, "statistics.interval.ms": 200, "stats_cb": counted}, *more)

    monkeypatch.setattr(reader, "settings", watched)
    with Journal(config) as journal, VersionFollower(config) as follower:
        journal.publish_version(version(0))
        assert follower.wait_newer(None, PATIENCE_S) == version(0)
        found = until(
            lambda: [each for each in fetches.values() if each[-1][0] - each[0][0] >= 3], "three seconds of it"
        )
    (begin, before), (end, after) = found[0][0], found[0][-1]
    assert (after - before) / (end - begin) < 8, "twice a second, and not 20 times"


def test_a_follower_that_fails_says_so_to_those_who_ask(config: Config) -> None:
    with VersionFollower(config) as follower:
        name = topic_name(config.run, "versions")
        client = admin(config.kafka)
        client.delete_topics([name])[name].result(PATIENCE_S)
        with pytest.raises(BrokerError, match="distrl topics ensure"):
            follower.wait_newer(None, PATIENCE_S)
        with pytest.raises(BrokerError, match="distrl topics ensure"):
            follower.latest()


def test_a_topic_that_is_deleted_while_its_offsets_are_asked_for_is_said_to_be_missing(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, client, found = topic_name(config.run, "versions"), admin(config.kafka), topic_admin.partition_count
    hasty = config.model_copy(update={"kafka": config.kafka.model_copy(update={"connect_timeout_s": 1.0})})

    def counted_and_deleted(*arguments: Any) -> int:
        count = found(*arguments)
        client.delete_topics([name])[name].result(PATIENCE_S)
        return count

    monkeypatch.setattr(reader, "partition_count", counted_and_deleted)
    with pytest.raises(UnknownTopicError, match="distrl topics ensure"):
        reader.retained(hasty, "versions")


def test_a_version_record_that_is_none_is_skipped(config: Config, producer: RecordProducer) -> None:
    producer.publish_bytes(topic_name(config.run, "versions"), b"1", b"garbage").result(PATIENCE_S)
    producer.publish("versions", "2", version(2)).result(PATIENCE_S)
    with VersionFollower(config) as follower:
        assert follower.latest() == version(2)
