"""`kafka.client`: librdkafka settings passed to every client, and validated by librdkafka itself."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from pydantic import SecretStr

from distrl.config import KafkaSettings
from distrl.errors import ConfigError
from distrl.librdkafka import is_secret

Settings = dict[str, object]

REFERENCE = "see https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md"


def passed(kafka: KafkaSettings, made: Settings) -> Settings:
    """`made`, our settings of a client, overridden by kafka.client. Raises as `check_client`."""
    check_client(kafka)
    plain = plain_settings(kafka)
    if plain.keys() & {"sasl.mechanism", "sasl.mechanisms"}:
        made = {name: value for name, value in made.items() if name != "sasl.mechanism"}
    return made | plain


def check_client(kafka: KafkaSettings) -> None:
    """Raises ConfigError if librdkafka refuses kafka.client, with the setting and librdkafka's message.

    A producer and a consumer are made and discarded; without an address, they connect to nothing.
    """
    plain = plain_settings(kafka)
    if plain:
        _checked(kafka.security_protocol, kafka.sasl_mechanism, kafka.max_record_bytes, tuple(sorted(plain.items())))


def plain_settings(kafka: KafkaSettings) -> dict[str, str]:
    """kafka.client with its secrets in plain text, for librdkafka only."""
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value
        for name, value in kafka.client.items()
    }


@lru_cache(maxsize=8)
def _checked(protocol: str, mechanism: str, most_bytes: int, given: tuple[tuple[str, str], ...]) -> None:
    """Cached: valid settings are checked once per process. Raises ConfigError."""
    base: Settings = {"security.protocol": protocol, "log_level": 2, "message.max.bytes": most_bytes}
    if protocol.startswith("SASL"):
        base |= {"sasl.username": "user", "sasl.password": "password"}
        if not {"sasl.mechanism", "sasl.mechanisms"} & {name for name, _ in given}:
            base["sasl.mechanism"] = mechanism
    for kind, own in _KINDS:
        refusal = _refusal(kind, base | own | dict(given))
        if refusal is not None:
            name = _at_fault(kind, base | own, dict(given), refusal)
            where = f"kafka.client.{name}" if name else "kafka.client"
            raise ConfigError(where, f"librdkafka refuses it: {_hidden(refusal, given)}", REFERENCE)


_KINDS: tuple[tuple[Any, Settings], ...] = (
    (Producer, {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 0}),
    (Consumer, {"group.id": "check"}),
)
"""The settings of our clients that librdkafka checks against others."""


def _refusal(kind: Any, settings: Settings) -> str | None:
    """librdkafka's error message for a client with these settings; None if it accepts them."""
    try:
        kind(settings)
    except KafkaException as error:
        return (
            str(error.args[0].str())
            .removeprefix("Failed to create producer: ")
            .removeprefix("Failed to create consumer: ")
            .strip()
        )
    except (TypeError, ValueError, AttributeError) as error:
        return str(error)
    return None


def _at_fault(kind: Any, base: Settings, given: dict[str, str], refusal: str) -> str | None:
    """The setting without which the refusal changes or disappears; else one that it names."""
    for name in given:
        if _refusal(kind, base | {other: value for other, value in given.items() if other != name}) != refusal:
            return name
    return next((name for name in given if name in refusal), None)


def _hidden(refusal: str, given: tuple[tuple[str, str], ...]) -> str:
    for name, value in given:
        if value and is_secret(name):
            refusal = refusal.replace(value, "***")
    return refusal
