"""Offsets of the log by time, from the broker's index."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # re-exported without saying so

from distrl.broker.connect import admin, explain, request_timeout_s, valid_offset, with_retry
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config


def offsets_at(config: Config, topic: str, partitions: Iterable[int], at_ms: int) -> dict[int, int | None]:
    """Partition -> offset of its first record of `at_ms` (ms since the epoch) or later; None if there is none.

    A record's time is its arrival by the broker's clock. `at_ms` below 0 counts as 0, as the broker gives negative
    numbers another meaning (-1: the end of the log).
    """
    at_ms = max(0, at_ms)
    name, kafka = topic_name(config.run, topic), config.kafka
    level = IsolationLevel.READ_COMMITTED if TOPICS[topic].transactional else IsolationLevel.READ_UNCOMMITTED
    wanted = {TopicPartition(name, partition): OffsetSpec.for_timestamp(at_ms) for partition in partitions}
    client = admin(kafka)

    def ask() -> dict[int, int | None]:
        client.list_topics(name, timeout=request_timeout_s(kafka))
        answers = client.list_offsets(wanted, isolation_level=level, request_timeout=request_timeout_s(kafka))
        found = {place.partition: valid_offset(answer.result().offset) for place, answer in answers.items()}
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    try:
        return with_retry(kafka, ask)
    except KafkaException as error:
        raise explain(error.args[0], name, "find the offset of a time", kafka) from None
