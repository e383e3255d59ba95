"""The declared topics at a broker: made, altered and described.

A topic that exists with other settings is reported with each difference, never silently used.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from distrl.broker.connect import RETRY_PAUSE_S, admin, check, explain, patiently
from distrl.broker.topics import (
    DAY_MS,
    TOPICS,
    Difference,
    Topic,
    compare,
    declared_settings,
    partitions,
    topic_name,
)
from distrl.config import Config
from distrl.errors import BrokerError


@dataclass(frozen=True, slots=True)
class TopicReport:
    """What `ensure` did with one topic: `action` is "created", "kept" or "altered"."""

    topic: str
    partitions: int
    action: str

    def __str__(self) -> str:
        return f"{self.topic}: {self.partitions} partition{'s' if self.partitions > 1 else ''}, {self.action}"


@dataclass(frozen=True, slots=True)
class TopicRow:
    """What is true of one topic. `offsets` maps a partition to (first kept, one past the last)."""

    name: str
    topic: str
    exists: bool
    partitions: int
    offsets: Mapping[int, tuple[int, int]]
    cleanup: str
    retention_ms: int
    differing: tuple[Difference, ...]

    @property
    def retention(self) -> str:
        return "for ever" if self.retention_ms < 0 else f"{self.retention_ms / DAY_MS:g} days"

    @property
    def differences(self) -> str:
        """Each difference from the declaration, in words; "missing" for a topic that does not exist."""
        return "; ".join(str(difference) for difference in self.differing) if self.exists else "missing"

    @property
    def records(self) -> int:
        """Offsets between the first and the end; in compacted and transactional topics, at most this many records."""
        return sum(end - begin for begin, end in self.offsets.values())


def ensure(config: Config, create: bool = True, alter: bool = False) -> list[TopicReport]:
    """Make every declared topic exist as declared; safe to repeat, and from several processes at once.

    create: make the missing ones, else they are an error. alter: change differing settings (and add partitions).
    Raises BrokerError with every difference, what is declared and what mends it.
    """
    check(config)
    client = admin(config.kafka)
    missing = [
        topic for topic in TOPICS.values() if topic_name(config.run, topic.name) not in _existing(client, config)
    ]
    if missing and not create:
        names = ", ".join(topic_name(config.run, topic.name) for topic in missing)
        raise BrokerError(names, f"not at the broker {config.kafka.bootstrap}", "run `distrl topics ensure`")
    created = _create(client, config, missing)
    differences = _differences(client, config)
    if differences and alter:
        _alter(client, config, differences)
        altered = {difference.topic for difference in differences}
        differences = _left(client, config)
    else:
        altered = set()
    if differences:
        raise _mismatch(config, differences)
    reports = []
    for topic in TOPICS.values():
        name = topic_name(config.run, topic.name)
        action = "created" if name in created else "altered" if name in altered else "kept"
        reports.append(TopicReport(name, partitions(config, topic), action))
    return reports


def describe(config: Config) -> list[TopicRow]:
    """One row per declared topic, in the order of declaration, whether it exists or not."""
    check(config)
    client = admin(config.kafka)
    existing = _existing(client, config)
    found = _found_settings(client, config, existing)
    rows = []
    for topic in TOPICS.values():
        name = topic_name(config.run, topic.name)
        count = existing.get(name, 0)
        kept = found.get(name, {})
        rows.append(
            TopicRow(
                topic.name,
                name,
                exists=count > 0,
                partitions=count,
                offsets=offsets(client, config, name, count),
                cleanup=kept.get("cleanup.policy", topic.cleanup),
                retention_ms=int(kept.get("retention.ms", topic.retention_ms)),
                differing=compare(config, topic, count, kept) if count else (),
            )
        )
    return rows


def partition_count(client: AdminClient, config: Config, topic: str, doing: str) -> int:
    """How many partitions the topic of this full name has. Raises as `explain` says; doing: what it is asked for.

    It is described: a question for the metadata of one topic makes it, where a broker makes topics by itself.
    """
    timeout_s = config.kafka.connect_timeout_s
    (answer,) = client.describe_topics(TopicCollection([topic]), request_timeout=timeout_s).values()
    try:
        return len(answer.result().partitions)
    except KafkaException as error:
        raise explain(error.args[0], topic, doing, config.kafka) from None


def offsets(
    client: AdminClient, config: Config, topic: str, count: int, committed_only: bool = False
) -> dict[int, tuple[int, int]]:
    """(first kept, one past the last) of each of the topic's `count` partitions.

    committed_only: the end that a reader of committed transactions can reach, which an open one holds back.
    """
    level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    places = [TopicPartition(topic, partition) for partition in range(count)]
    timeout_s = config.kafka.connect_timeout_s

    def ask(spec: OffsetSpec) -> dict[int, int]:
        # librdkafka remembers that a topic was unknown a moment ago; asking for its metadata makes it look again.
        client.list_topics(topic, timeout=timeout_s)
        answers = client.list_offsets(dict.fromkeys(places, spec), isolation_level=level, request_timeout=timeout_s)
        return {place.partition: answer.result().offset for place, answer in answers.items()}

    if not places:
        return {}
    try:
        first = patiently(config.kafka, lambda: ask(OffsetSpec.earliest()))  # type: ignore[no-untyped-call]
        end = patiently(config.kafka, lambda: ask(OffsetSpec.latest()))  # type: ignore[no-untyped-call]
    except KafkaException as error:
        raise explain(error.args[0], topic, "read the offsets", config.kafka) from None
    return {partition: (first[partition], end[partition]) for partition in first}


def _existing(client: AdminClient, config: Config) -> dict[str, int]:
    """Name and number of partitions of the topics of this run that exist."""
    try:
        found = client.list_topics(timeout=config.kafka.connect_timeout_s).topics
    except KafkaException as error:
        raise explain(error.args[0], "kafka.bootstrap", "list the topics", config.kafka) from None
    names = {topic_name(config.run, name) for name in TOPICS}
    return {name: len(topic.partitions) for name, topic in found.items() if name in names}


def _create(client: AdminClient, config: Config, missing: list[Topic]) -> set[str]:
    if not missing:
        return set()
    wanted = [
        NewTopic(
            topic_name(config.run, topic.name),
            num_partitions=partitions(config, topic),
            replication_factor=config.kafka.replication_factor,
            config=declared_settings(config, topic),
        )
        for topic in missing
    ]
    created = set()
    futures = client.create_topics(wanted, operation_timeout=config.kafka.connect_timeout_s)
    for name, future in futures.items():
        try:
            _result(future, config, name, "create the topic")
        except _AlreadyThereError:
            continue  # another process was quicker; what it made is compared like any other
        created.add(name)
    for topic in wanted:  # "created" should mean that it can be used: wait until each partition has its leader
        offsets(client, config, topic.topic, topic.num_partitions)
    return created


def _differences(client: AdminClient, config: Config) -> list[Difference]:
    existing = _existing(client, config)
    found = _found_settings(client, config, existing)
    return [
        difference
        for topic in TOPICS.values()
        if (name := topic_name(config.run, topic.name)) in existing
        for difference in compare(config, topic, existing[name], found[name])
    ]


def _left(client: AdminClient, config: Config) -> list[Difference]:
    """What differs after an alteration. A broker may tell the old number of partitions for a moment after it has
    acknowledged a new one, so what can be changed is looked at until it is, or connect_timeout_s is over.
    """
    deadline = time.monotonic() + config.kafka.connect_timeout_s
    while True:
        found = _differences(client, config)
        if all(difference.shrinks for difference in found) or time.monotonic() > deadline:
            return found
        time.sleep(RETRY_PAUSE_S)


def _found_settings(client: AdminClient, config: Config, existing: Mapping[str, int]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in existing]
    if not resources:
        return {}
    answers = client.describe_configs(resources, request_timeout=config.kafka.connect_timeout_s)
    return {
        resource.name: {
            entry.name: entry.value
            for entry in _result(answer, config, resource.name, "read the settings").values()
            if entry.value is not None
        }
        for resource, answer in answers.items()
    }


def _alter(client: AdminClient, config: Config, differences: list[Difference]) -> None:
    timeout_s = config.kafka.connect_timeout_s
    for difference in differences:
        name, value = difference.topic, difference.declared
        if difference.shrinks:
            continue  # reported by the comparison that follows
        if difference.setting == "partitions":
            grown = client.create_partitions([NewPartitions(name, int(value))], request_timeout=timeout_s)
            _result(grown[name], config, name, "add partitions")
        else:
            entry = ConfigEntry(difference.setting, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            done = client.incremental_alter_configs([resource], request_timeout=timeout_s)
            _result(done[resource], config, name, "change the settings")


def _mismatch(config: Config, differences: list[Difference]) -> BrokerError:
    shrinking = [difference for difference in differences if difference.shrinks]
    mends = []
    if len(shrinking) < len(differences):
        mends.append("run `distrl topics ensure --alter` to change the topics to what is declared")
    if shrinking:
        tasks = topic_name(config.run, "tasks")
        fits = [f"set kafka.task_partitions to {d.found}" for d in shrinking if d.topic == tasks]
        mends.append(
            "; ".join([*fits, "Kafka cannot take partitions away: choose another `run`, or delete the topic first"])
        )
    lines = "".join(f"\n  {difference}" for difference in differences)
    return BrokerError(
        f"topics of run {config.run}", f"exist with other settings than declared:{lines}", "; ".join(mends)
    )


class _AlreadyThereError(Exception):
    """The topic exists; the caller decides what that means."""


def _result(future: Future[Any], config: Config, topic: str, doing: str) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            raise _AlreadyThereError from None
        raise explain(error.args[0], topic, doing, config.kafka) from None
