"""Transactions that nobody ends: readers of committed records see nothing that was written after one began.

The broker ends a transaction whose process is dead (TRANSACTION_TIMEOUT_S in fenced.py). A loss of power may take that
end from the log when the broker no longer knows of the transaction: then it stays open until Kafka's own tool aborts
it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from distrl.broker.connect import admin
from distrl.broker.fenced import TRANSACTION_TIMEOUT_S
from distrl.broker.topic_admin import offsets, partition_count
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config

LASTING_S = 2.0
"""Nearly every transaction of a process that lives is over by then."""


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

    def how_to_end(self, bootstrap: str) -> str:
        """The command that ends it, and when to run it."""
        return (
            f"if it is still open after {TRANSACTION_TIMEOUT_S:.0f} s, no process will end it: run Kafka's "
            f"`kafka-transactions.sh --bootstrap-server {bootstrap} abort --topic {self.topic} "
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


def lasting_transactions(config: Config) -> tuple[OpenTransaction, ...]:
    """Those of the run's journal and versions that are open for LASTING_S at least; waits for that long if one is open.

    Raises as `open_transactions`.
    """
    topics = [topic.name for topic in TOPICS.values() if topic.transactional]
    found = [each for topic in topics for each in open_transactions(config, topic)]
    if not found:
        return ()
    time.sleep(LASTING_S)
    return tuple(each for topic in topics for each in open_transactions(config, topic) if each in found)
