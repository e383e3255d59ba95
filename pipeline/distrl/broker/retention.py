"""How long a cluster keeps the committed offsets of a consumer group without members."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]  # re-exported

from distrl.broker.connect import admin, request_timeout_s
from distrl.config import Config

SETTING: Final = "offsets.retention.minutes"
LEAST_MINUTES: Final = 30 * 24 * 60
"""How long a run may pause at least. Kafka's default is a week; infra/kafka sets a year."""


def offsets_kept_minutes(config: Config) -> int | None:
    """The setting of the cluster's first broker; None if it does not tell: this user may not ask, or it is not Apache
    Kafka."""
    client, timeout_s = admin(config.kafka), request_timeout_s(config.kafka)
    try:
        broker = min(client.list_topics(timeout=timeout_s).brokers)
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        (answer,) = client.describe_configs([resource], request_timeout=timeout_s).values()
        entry = answer.result().get(SETTING)
        return int(entry.value) if entry is not None else None
    except (KafkaException, TypeError, ValueError):
        return None


def forgets(minutes: int | None) -> str:
    """The consequence of keeping offsets for so many minutes, with its fix; empty if that is long enough, or
    unknown."""
    if minutes is None or minutes >= LEAST_MINUTES:
        return ""
    return (
        f"after {minutes / 1440:.3g} days without a worker it forgets which tasks were played, and all are played "
        f"again: set the brokers' {SETTING} to 525600"
    )
