"""Transactions that nobody ends: readers of committed records see nothing that was written after one began.

The broker ends a transaction whose process is dead (TRANSACTION_TIMEOUT_S in fenced.py). A loss of power may take that
end from the log when the broker no longer knows of the transaction: then it stays open until Kafka's own tool aborts
it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from distrl.broker.connect import admin
from distrl.broker.fenced import TRANSACTION_TIMEOUT_S
from distrl.broker.topic_admin import kafka_tool, offsets, partition_count
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config, KafkaSettings

LOOK_S = 1.0
"""Time between two looks at one that may last."""
TRANSACTIONAL: Final = tuple(topic.name for topic in TOPICS.values() if topic.transactional)
"""The journal and the versions."""


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The first open transaction of a partition."""

    topic: str
    """Its full name."""
    partition: int
    offset: int
    """Of its first record. No reader of committed records sees this one or a later one."""

    def __str__(self) -> str:
        return (
            f"a transaction in {self.topic}[{self.partition}] is open from offset {self.offset} on, "
            "and nobody sees what was written after it"
        )

    def how_to_end(self, kafka: KafkaSettings) -> str:
        """The command that ends one that lasts."""
        return (
            "no process will end it unless a start of the learner does: run Kafka's "
            f"`{kafka_tool('kafka-transactions.sh', kafka)} abort --topic {self.topic} "
            f"--partition {self.partition} --start-offset {self.offset}`"
        )


def open_transactions(config: Config, topic: str) -> tuple[OpenTransaction, ...]:
    """Those that hide records of the topic (a key of TOPICS) now, also ones that are over a moment later.

    Raises UnknownTopicError if the topic is missing, and BrokerError.
    """
    name, client = topic_name(config.run, topic), admin(config.kafka)
    partitions = range(partition_count(client, config, name, "see its transactions"))
    whole = offsets(client, config, name, partitions)  # asked first: what is written meanwhile does not count as hidden
    seen = offsets(client, config, name, partitions, committed_only=True)
    return tuple(OpenTransaction(name, each, seen[each][1]) for each in partitions if seen[each][1] < whole[each][1])


def lasting_transactions(config: Config, topics: Sequence[str] = TRANSACTIONAL) -> tuple[OpenTransaction, ...]:
    """Those that are open for longer than any process may take; waits for that long if one is open. topics: keys of
    TOPICS.

    Raises as `open_transactions`.
    """
    found = [each for topic in topics for each in open_transactions(config, topic)]
    deadline = time.monotonic() + TRANSACTION_TIMEOUT_S
    while found and time.monotonic() < deadline:
        time.sleep(LOOK_S)
        found = [each for topic in topics for each in open_transactions(config, topic) if each in found]
    return tuple(found)
