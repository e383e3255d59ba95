"""Deletes what a broker holds of a run: its topics and the workers' group, for `distrl runs rm`; the first records of a
topic."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from distrl.broker.connect import RETRY_PAUSE_S, admin, explain, failover_s, no_answer, with_retry
from distrl.broker.group import workers_group
from distrl.broker.runs import run_names
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config

GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.GROUP_ID_NOT_FOUND)
LAST = "trajectories"
"""Deleted last: by it a run is found, so a removal that was interrupted can be repeated."""


def delete_group(config: Config) -> None:
    """Delete the workers' group and its offsets, if it is there. Raises BrokerError while it has members."""
    group = workers_group(config)
    client = admin(config.kafka)

    def ask() -> None:
        client.delete_consumer_groups([group], request_timeout=config.kafka.connect_timeout_s)[group].result()

    _unless_gone(config, group, "delete the group", ask)


def delete_topics(config: Config) -> None:
    """Delete every topic of the run that is there, and wait, for at most kafka.connect_timeout_s, until the run is no
    longer listed. Raises BrokerError."""
    client = admin(config.kafka)
    for name in (*(each for each in TOPICS if each != LAST), LAST):
        full = topic_name(config.run, name)

        def ask(full: str = full) -> None:
            timeout_s = config.kafka.connect_timeout_s
            client.delete_topics([full], operation_timeout=timeout_s, request_timeout=timeout_s)[full].result()

        _unless_gone(config, full, "delete the topic", ask)
    deadline = time.monotonic() + config.kafka.connect_timeout_s
    while config.run in run_names(config) and time.monotonic() < deadline:
        time.sleep(RETRY_PAUSE_S)


def delete_before(config: Config, topic: str, partition: int, offset: int) -> None:
    """Delete the records of a topic (a key of TOPICS) before `offset` in this partition. Raises BrokerError."""
    name = topic_name(config.run, topic)
    place, longest_s = TopicPartition(name, partition, offset), failover_s(config.kafka)
    client = admin(config.kafka)  # in a variable: a client that is garbage-collected never answers
    try:
        client.delete_records([place])[place].result(longest_s)
    except KafkaException as error:
        raise explain(error.args[0], name, "delete its first records", config.kafka) from None
    except TimeoutError:
        raise no_answer(name, longest_s) from None


def _unless_gone(config: Config, what: str, doing: str, ask: Callable[[], None]) -> None:
    try:
        with_retry(config.kafka, ask)
    except KafkaException as error:
        if error.args[0].code() not in GONE:
            raise explain(error.args[0], what, doing, config.kafka) from None
