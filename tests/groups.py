"""A member of the workers' group; what the group has committed, and who is in it, asked by one that is no member.

The commits not by the admin client: its request takes the process down where the broker has no coordinator for the
group yet (librdkafka issue 5040), as it has not for a moment after it was away.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from distrl.broker.connect import admin, settings
from distrl.broker.consumer import TaskConsumer
from distrl.broker.topics import topic_name
from distrl.config import Config

PATIENCE_S = 300.0
PHONES = 8
"""Of a member: for so many it takes tasks."""
LOOKING = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What a broker that was away answers for a moment."""


def member(config: Config, *more: Any, **settings: Any) -> TaskConsumer:
    """A worker's consumer whose phones answer: in the group, or on its way there."""
    made = TaskConsumer(config, *more, **settings)
    made.take_for(PHONES)
    return made


def workers_group(config: Config) -> str:
    return f"distrl.{config.run}.{config.worker.group}"


def committed(config: Config) -> dict[int, int]:
    """Partition of the tasks topic -> the workers' next offset. A partition without a commit is left out."""
    topic = topic_name(config.run, "tasks")
    asker = Consumer(settings(config.kafka, "a test", {"group.id": workers_group(config)}))
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            places = [TopicPartition(topic, partition) for partition in range(config.kafka.task_partitions)]
            try:
                found = asker.committed(places, PATIENCE_S)
            except KafkaException as error:
                if error.args[0].code() not in LOOKING or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
                continue
            return {each.partition: each.offset for each in found if each.offset >= 0}
    finally:
        asker.close()


def members(config: Config) -> int:
    """How many workers are in the group. It must be there: a worker has joined it, and its broker has not been away."""
    client, group = admin(config.kafka), workers_group(config)
    return len(client.describe_consumer_groups([group])[group].result(PATIENCE_S).members)
