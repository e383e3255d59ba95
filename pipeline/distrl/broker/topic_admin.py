"""Creates, alters and describes the declared topics at a broker.

A topic that exists with other settings is reported with each difference, never silently used.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the package re-exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from distrl.broker.connect import (
    RETRY_PAUSE_S,
    UNKNOWN_TOPIC,
    admin,
    check,
    explain,
    request_timeout_s,
    valid_offset,
    with_retry,
)
from distrl.broker.reassign import copies, plan, reassigned
from distrl.broker.topics import (
    DAY_MS,
    TOPICS,
    Topic,
    TopicDifference,
    alterable,
    compare,
    declared_settings,
    partitions,
    topic_name,
)
from distrl.config import Config, KafkaSettings
from distrl.errors import BrokerError

NO_ID = "A" * 22
"""The zero UUID, which a broker without topic ids answers."""


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
    """One topic as it is at the broker."""

    name: str
    topic: str
    """Its full name."""
    exists: bool
    partitions: int
    copies: int
    """Replicas of each partition."""
    offsets: Mapping[int, tuple[int, int]]
    """Partition -> (first retained, one past the last)."""
    cleanup: str
    retention_ms: int
    differing: tuple[TopicDifference, ...]

    @property
    def retention(self) -> str:
        return "for ever" if self.retention_ms < 0 else f"{self.retention_ms / DAY_MS:g} days"

    @property
    def differences(self) -> str:
        """Each difference from the declaration, in words; "missing" for a topic that does not exist."""
        return "; ".join(str(difference) for difference in self.differing) if self.exists else "missing"

    @property
    def records(self) -> int:
        """Offsets from the first to the end: an upper bound of the records in compacted and transactional topics."""
        return sum(end - begin for begin, end in self.offsets.values())


def ensure(config: Config, create: bool = True, alter: bool = False) -> list[TopicReport]:
    """Make every declared topic exist as declared; safe to repeat, and from several processes at once.

    create: create missing topics, else they are an error. alter: change differing settings (and add partitions).
    The replication factor is never altered: with `alter`, a plan for Kafka's own tool is written.
    Raises BrokerError with every difference and what fixes it.
    """
    check(config)
    client = admin(config.kafka)
    existing = _existing(client, config)
    missing = [topic for topic in TOPICS.values() if topic_name(config.run, topic.name) not in existing]
    if missing and not create:
        names = ", ".join(topic_name(config.run, topic.name) for topic in missing)
        raise BrokerError(names, f"missing at the broker {config.kafka.bootstrap}", "run `distrl topics ensure`")
    created = _create(client, config, missing)
    differences = _differences(client, config)
    if differences and alter:
        changed = alterable(differences)
        _alter(client, config, changed)
        altered = {difference.topic for difference in changed}
        differences = _left(client, config)
    else:
        altered = set()
    if differences:
        moving = any(difference.moves for difference in differences)
        raise _mismatch(config, differences, _write_plan(client, config) if alter and moving else None)
    reports = []
    for topic in TOPICS.values():
        name = topic_name(config.run, topic.name)
        action = "created" if name in created else "altered" if name in altered else "kept"
        reports.append(TopicReport(name, partitions(config, topic), action))
    return reports


def describe(config: Config) -> list[TopicRow]:
    """One row per declared topic, in order of declaration, whether it exists or not."""
    check(config)
    client = admin(config.kafka)
    existing = _existing(client, config)
    found = _found_settings(client, config, existing)
    rows = []
    for topic in TOPICS.values():
        name = topic_name(config.run, topic.name)
        held = existing.get(name, {})
        count = len(held)
        kept = found.get(name, {})
        rows.append(
            TopicRow(
                topic.name,
                name,
                exists=count > 0,
                partitions=count,
                copies=copies(held) if held else 0,
                offsets=offsets(client, config, name, range(count)),
                cleanup=kept.get("cleanup.policy", topic.cleanup),
                retention_ms=int(kept.get("retention.ms", topic.retention_ms)),
                differing=compare(config, topic, count, kept, copies(held)) if held else (),
            )
        )
    return rows


def partition_count(client: AdminClient, config: Config, topic: str, doing: str) -> int:
    """How many partitions the topic of this full name has. Raises as `explain`; doing: as in `explain`.

    Uses describe: a metadata request for one topic would create it if the broker auto-creates topics.
    """
    timeout_s = request_timeout_s(config.kafka)

    def ask() -> int:
        (answer,) = client.describe_topics(TopicCollection([topic]), request_timeout=timeout_s).values()
        return len(answer.result().partitions)

    try:
        return with_retry(config.kafka, ask)
    except KafkaException as error:
        raise explain(error.args[0], topic, doing, config.kafka) from None


def topic_id(client: AdminClient, config: Config, topic: str) -> str:
    """The id of the topic of this full name, which changes if it is created again; empty if the broker has none.

    Raises as `explain`.
    """
    timeout_s = request_timeout_s(config.kafka)

    def ask() -> str:
        (answer,) = client.describe_topics(TopicCollection([topic]), request_timeout=timeout_s).values()
        return str(answer.result().topic_id or "")

    try:
        found = with_retry(config.kafka, ask)
    except KafkaException as error:
        raise explain(error.args[0], topic, "read its id", config.kafka) from None
    return "" if found == NO_ID else found


def offsets(
    client: AdminClient,
    config: Config,
    topic: str,
    partitions: Iterable[int],
    committed_only: bool = False,
    just_made: bool = False,
) -> dict[int, tuple[int, int]]:
    """(first retained, one past the last) of each of these partitions of the topic.

    committed_only: the end is the last stable offset, before any open transaction.
    just_made: retry if the topic is unknown, as the brokers of a cluster learn of it one after the other.
    """
    level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
    places = [TopicPartition(topic, partition) for partition in partitions]
    timeout_s = request_timeout_s(config.kafka)

    def ask(spec: OffsetSpec) -> dict[int, int]:
        # librdkafka caches that a topic was unknown; a metadata request refreshes that.
        client.list_topics(topic, timeout=timeout_s)
        answers = client.list_offsets(dict.fromkeys(places, spec), isolation_level=level, request_timeout=timeout_s)
        return {place.partition: valid_offset(answer.result().offset) for place, answer in answers.items()}

    if not places:
        return {}
    also = UNKNOWN_TOPIC if just_made else ()
    try:
        first = with_retry(config.kafka, lambda: ask(OffsetSpec.earliest()), also)  # type: ignore[no-untyped-call]
        end = with_retry(config.kafka, lambda: ask(OffsetSpec.latest()), also)  # type: ignore[no-untyped-call]
    except KafkaException as error:
        if error.args[0].code() == KafkaError._NOENT:  # nobody leads its partitions: it may have been deleted meanwhile
            partition_count(client, config, topic, "read the offsets")
        raise explain(error.args[0], topic, "read the offsets", config.kafka) from None
    return {partition: (first[partition], end[partition]) for partition in first}


def broker_count(config: Config) -> int:
    """How many brokers the cluster has, by the one that answers. Raises BrokerError."""
    return len(_cluster(admin(config.kafka), config).brokers)


def _cluster(client: AdminClient, config: Config) -> ClusterMetadata:
    try:
        return with_retry(config.kafka, lambda: client.list_topics(timeout=request_timeout_s(config.kafka)))
    except KafkaException as error:
        raise explain(error.args[0], "kafka.bootstrap", "list the topics", config.kafka) from None


def _existing(client: AdminClient, config: Config) -> dict[str, dict[int, list[int]]]:
    """The topics of this run that exist: name -> partition -> the brokers that hold a replica."""
    names = {topic_name(config.run, name) for name in TOPICS}
    return {
        name: {number: list(partition.replicas) for number, partition in topic.partitions.items()}
        for name, topic in _cluster(client, config).topics.items()
        if name in names and topic.partitions
    }


def _write_plan(client: AdminClient, config: Config) -> Path:
    """Write the file with which Kafka's own tool gives each topic of the run its declared replicas."""
    brokers = _cluster(client, config).brokers.keys()
    wanted = reassigned(_existing(client, config), brokers, config.kafka.replication_factor)
    file = config.stack.directory.expanduser().absolute().parent / f"reassign-{config.run}.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(plan(wanted), encoding="utf-8")
    except OSError as error:
        raise BrokerError(
            str(file), f"cannot be written ({error.strerror})", "free disk space, or set stack.directory"
        ) from None
    return file


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
    created: set[str] = set()
    refused = ""

    def ask() -> None:
        nonlocal refused
        left = [topic for topic in wanted if topic.topic not in created]
        timeout_s = config.kafka.connect_timeout_s
        for name, future in client.create_topics(left, operation_timeout=timeout_s, request_timeout=timeout_s).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue  # created by another process meanwhile; compared like any other
                refused = name
                raise
            created.add(name)

    try:
        with_retry(config.kafka, ask)
    except KafkaException as error:
        raise explain(error.args[0], refused, "create the topic", config.kafka) from None
    for topic in wanted:  # wait until each partition has a leader, so that a created topic can be used
        offsets(client, config, topic.topic, range(topic.num_partitions), just_made=True)
    return created


def _differences(client: AdminClient, config: Config) -> list[TopicDifference]:
    existing = _existing(client, config)
    found = _found_settings(client, config, existing)
    return [
        difference
        for topic in TOPICS.values()
        if (name := topic_name(config.run, topic.name)) in existing
        for difference in compare(config, topic, len(existing[name]), found[name], copies(existing[name]))
    ]


def _left(client: AdminClient, config: Config) -> list[TopicDifference]:
    """What differs after an alteration. A broker may report the old number of partitions for a moment after it has
    acknowledged a new one, so alterable differences are polled until they are gone, at most connect_timeout_s.
    """
    deadline = time.monotonic() + config.kafka.connect_timeout_s
    while True:
        found = _differences(client, config)
        if not alterable(found) or time.monotonic() > deadline:
            return found
        time.sleep(RETRY_PAUSE_S)


def _found_settings(client: AdminClient, config: Config, existing: Iterable[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in existing]
    if not resources:
        return {}

    def ask() -> dict[str, dict[str, str]]:
        answers = client.describe_configs(resources, request_timeout=request_timeout_s(config.kafka))
        return {
            resource.name: {e.name: e.value for e in answer.result().values() if e.value is not None}
            for resource, answer in answers.items()
        }

    try:
        return with_retry(config.kafka, ask)
    except KafkaException as error:
        raise explain(error.args[0], f"topics of run {config.run}", "read the settings", config.kafka) from None


def _alter(client: AdminClient, config: Config, differences: list[TopicDifference]) -> None:
    timeout_s = config.kafka.connect_timeout_s
    for difference in differences:
        name, value = difference.topic, difference.declared
        if difference.setting == "partitions":
            grown = client.create_partitions([NewPartitions(name, int(value))], request_timeout=timeout_s)
            _result(grown[name], config, name, "add partitions")
        else:
            entry = ConfigEntry(difference.setting, value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])
            done = client.incremental_alter_configs([resource], request_timeout=timeout_s)
            _result(done[resource], config, name, "change the settings")


def kafka_tool(name: str, kafka: KafkaSettings) -> str:
    """The beginning of a command of Kafka's own tool of this name, for people."""
    secured = "" if kafka.security_protocol == "PLAINTEXT" else " --command-config CLIENT.properties"
    return f"{name} --bootstrap-server {kafka.bootstrap}{secured}"


def _mismatch(config: Config, differences: list[TopicDifference], written: Path | None = None) -> BrokerError:
    """written: the plan that gives each topic its replicas, for Kafka's own tool."""
    shrinking = [difference for difference in differences if difference.shrinks]
    hints = []
    if written is not None:
        tool = kafka_tool("kafka-reassign-partitions.sh", config.kafka)
        hints.append(
            f"change the replicas with Kafka's own tool: `{tool} --reassignment-json-file {written} --execute`, then "
            "the same with --verify instead of --execute until all is complete, then `distrl topics ensure --alter` "
            "once more"
        )
    elif any(difference.moves for difference in differences):
        found = {d.found for d in differences if d.moves}
        hints.append(
            "run `distrl topics ensure --alter`, which writes a reassignment plan and prints the command to run it"
            + (f", or set kafka.replication_factor to {found.pop()}" if len(found) == 1 else "")
        )
    if alterable(differences):
        hints.append("run `distrl topics ensure --alter` to change the topics to their declared settings")
    if shrinking:
        tasks = topic_name(config.run, "tasks")
        fits = [f"set kafka.task_partitions to {d.found}" for d in shrinking if d.topic == tasks]
        hints.append(
            "; ".join([*fits, "Kafka cannot remove partitions: choose another `run`, or delete the topic first"])
        )
    lines = "".join(f"\n  {difference}" for difference in differences)
    return BrokerError(
        f"topics of run {config.run}", f"exist with other settings than declared:{lines}", "; ".join(hints)
    )


def _result(future: Future[Any], config: Config, topic: str, doing: str) -> Any:
    try:
        return future.result()
    except KafkaException as error:
        raise explain(error.args[0], topic, doing, config.kafka) from None
