"""How long a cluster remembers how far a group without members is."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ConfigResource, ResourceType  # type: ignore[attr-defined]  # re-exported

from distrl.broker.connect import FORBIDDEN, admin, explain, request_timeout_s, with_retry
from distrl.config import Config

SETTING: Final = "offsets.retention.minutes"
LEAST_MINUTES: Final = 30 * 24 * 60
"""A run may rest for so long. Kafka's own is a week, and infra/kafka has a year."""


def offsets_kept_minutes(config: Config) -> int | None:
    """Of the cluster's first broker; None where this user may not ask for it. Raises BrokerError."""
    client, timeout_s = admin(config.kafka), request_timeout_s(config.kafka)

    def ask() -> int:
        broker = min(client.list_topics(timeout=timeout_s).brokers)
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        (answer,) = client.describe_configs([resource], request_timeout=timeout_s).values()
        return int(answer.result()[SETTING].value)

    try:
        return with_retry(config.kafka, ask)
    except KafkaException as error:
        if error.args[0].code() in FORBIDDEN:
            return None
        raise explain(error.args[0], SETTING, "read the broker's settings", config.kafka) from None


def forgets(minutes: int | None) -> str:
    """What comes of offsets that are kept for so long; empty where that is long enough, or unknown."""
    if minutes is None or minutes >= LEAST_MINUTES:
        return ""
    return (
        f"after {minutes / 1440:.3g} days without a worker it forgets which tasks were played, and all are played "
        f"again: set the brokers' {SETTING} to 525600"
    )
