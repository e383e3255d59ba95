"""The workers' group's committed offsets in `tasks`, for processes that are not members.

Not by the admin client: its request aborts the whole process while the broker has no coordinator for the group, as for
a moment after a restart (librdkafka issue 5040).
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from confluent_kafka import Consumer, KafkaException, TopicPartition

from distrl.broker.connect import admin, explain, settings, with_retry
from distrl.broker.reader import RawRecord, read_since
from distrl.broker.topic_admin import partition_count
from distrl.broker.topics import topic_name
from distrl.config import Config

ASK_S = 5.0
"""Longest wait for an answer; callers ask again later."""


def workers_group(config: Config) -> str:
    return f"distrl.{config.run}.{config.worker.group}"


class GroupOffsets:
    """Asks for the group's committed offsets. A context manager; one thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._topic = topic_name(config.run, "tasks")
        try:
            own = {"group.id": workers_group(config)}
            self._consumer = Consumer(settings(config.kafka, "distrl-group", own))
        except KafkaException as error:
            raise explain(error.args[0], self._topic, "ask for offsets", config.kafka) from None

    def __enter__(self) -> GroupOffsets:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """Partition of `tasks` -> the workers' next offset; partitions without a commit are left out.

        Raises BrokerError if there is no answer within ASK_S, or `failover_s` while the cluster is settling.
        """
        places = [TopicPartition(self._topic, partition) for partition in partitions]
        try:
            found = with_retry(self._config.kafka, lambda: self._consumer.committed(places, ASK_S))
        except KafkaException as error:
            raise explain(error.args[0], self._topic, "read the workers' offsets", self._config.kafka) from None
        return {each.partition: each.offset for each in found if each.error is None and each.offset >= 0}


def uncommitted(config: Config) -> list[RawRecord]:
    """The records of `tasks` that the workers' group has not committed. Raises BrokerError."""
    name = topic_name(config.run, "tasks")
    count = partition_count(admin(config.kafka), config, name, "see how far the workers are")
    with GroupOffsets(config) as group:
        committed = group.committed(range(count))
    return read_since(config, "tasks", committed)
