"""The form in which values are sent: as they are, or in Confluent's wire format with the ids of a schema registry.

Each client that writes calls `sent_as` once. Readers take both forms (`distrl.wire.confluent`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from distrl.config import KafkaSettings
from distrl.errors import BrokerError, ConfigError
from distrl.wire.confluent import Headers, fingerprint_of, framed
from distrl.wire.schemas import Schema, catalogue, schema_text

WHERE = "kafka.schema_registry_url"
REQUEST_TIMEOUT_S = 10
"""Longest wait for one answer of the registry; its client asks four times."""

Form = Callable[[bytes | None, Headers], tuple[bytes | None, Headers]]
"""(value, headers) -> the value and headers that are sent."""


def sent_as(kafka: KafkaSettings) -> Form:
    """The form of `kafka.framing`. Raises BrokerError where the registry refuses or does not answer, and ConfigError
    where its client is not installed."""
    if kafka.framing == "none":
        return _as_it_is
    password = kafka.schema_registry_password
    return _registered(
        str(kafka.schema_registry_url),
        kafka.schema_registry_username,
        password.get_secret_value() if password else None,
        str(kafka.schema_registry_ca) if kafka.schema_registry_ca else None,
    )


def _as_it_is(value: bytes | None, headers: Headers) -> tuple[bytes | None, Headers]:
    return value, headers


@cache
def _registered(url: str, user: str | None, password: str | None, ca: str | None) -> Form:
    """Cached: the clients of a process register a schema once."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ModuleNotFoundError as missing:
        raise ConfigError(
            "kafka.framing",
            f"is confluent, and {missing.name} is not installed",
            "install the extra (`pip install -e '.[registry]'` in the checkout), or set kafka.framing=none",
        ) from None
    settings: dict[str, Any] = {"url": url, "timeout": REQUEST_TIMEOUT_S}
    if user is not None:
        settings["basic.auth.user.info"] = f"{user}:{password or ''}"
    if ca is not None:
        settings["ssl.ca.location"] = ca
    try:
        client = SchemaRegistryClient.new_client(settings)
    except OSError as error:
        raise ConfigError(
            "kafka.schema_registry_ca", f"{ca}: {error.strerror or error}", "name a PEM file that can be read"
        ) from None
    ids = RegisteredSchemas(client, url)
    for mark in catalogue().by_fingerprint:  # before the first record: no later one needs the registry
        ids.id_of(mark)
    return ids.form


def registered_text(schema: Schema) -> str:
    """The text of a schema for a registry: the shipped file, except that a default of "{}" is written "{ }".

    Apicurio Registry (3.3.3) refuses a schema with `"default": "{}"` as invalid Avro. These defaults are JSON texts, so
    "{ }" means the same. A default changes neither how a value is written nor the schema's fingerprint.
    """
    return schema_text(schema).replace('"default": "{}"', '"default": "{ }"')


class RegisteredSchemas:
    """The ids that a registry gives our schemas, each under the subject of its full name (RecordNameStrategy). Any
    thread. client: a SchemaRegistryClient."""

    def __init__(self, client: Any, url: str) -> None:
        self._client, self._url = client, url
        self._ids: dict[bytes, int] = {}
        self._lock = threading.Lock()

    def form(self, value: bytes | None, headers: Headers) -> tuple[bytes | None, Headers]:
        """A `Form`: a value that has one of our schemas is framed, any other is sent as it is."""
        mark = fingerprint_of(value)
        if value is None or mark is None or mark not in catalogue().by_fingerprint:
            return value, headers
        return framed(value, headers, self.id_of(mark))

    def id_of(self, mark: bytes) -> int:
        """The id of the schema with this fingerprint, which is registered where it is not yet. Raises BrokerError."""
        with self._lock:
            if mark not in self._ids:
                self._ids[mark] = self._register(mark)
            return self._ids[mark]

    def _register(self, mark: bytes) -> int:
        from confluent_kafka.schema_registry import Schema as Registered
        from confluent_kafka.schema_registry import SchemaRegistryError
        from httpx2 import HTTPError

        schema = catalogue().by_fingerprint[mark]
        try:
            return int(self._client.register_schema(schema.parsed["name"], Registered(registered_text(schema), "AVRO")))
        except SchemaRegistryError as error:
            raise BrokerError(
                WHERE,
                f"the registry at {self._url} refuses {schema}: {error.error_message} ({error.error_code})",
                "give its user the right to register schemas (kafka.schema_registry_username), or set "
                "kafka.framing=none",
            ) from None
        except (HTTPError, OSError) as error:
            raise BrokerError(
                WHERE,
                f"the registry at {self._url} gives no id of {schema}: {error}",
                "start it, correct the address or kafka.schema_registry_ca, or set kafka.framing=none",
            ) from None
        except (ValueError, TypeError, AttributeError) as error:  # of what it is answered, as by a page of a proxy
            raise BrokerError(
                WHERE, f"what answers at {self._url} is no schema registry ({error})", "correct the address"
            ) from None
