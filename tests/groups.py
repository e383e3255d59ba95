"""What a consumer group has committed, asked by one that is no member of it.

Not by the admin client: its request takes the whole process down where the broker has no coordinator for the group yet
(librdkafka issue 5040), as it has not for a moment after it was away.
"""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition
from distrl.broker.connect import settings
from distrl.broker.topics import topic_name
from distrl.config import Config

PATIENCE_S = 90.0


def workers_group(config: Config) -> str:
    return f"distrl.{config.run}.{config.worker.group}"


def committed(config: Config) -> dict[int, int]:
    """Partition of the tasks topic -> the workers' next offset. A partition without a commit is left out."""
    topic = topic_name(config.run, "tasks")
    asker = Consumer({**settings(config.kafka, "a test"), "group.id": workers_group(config)})
    try:
        places = [TopicPartition(topic, partition) for partition in range(config.kafka.task_partitions)]
        return {each.partition: each.offset for each in asker.committed(places, PATIENCE_S) if each.offset >= 0}
    finally:
        asker.close()
