"""The AsyncAPI 3 document of a run's topics: records, keys, headers, settings, and who reads and writes. Pure.

Made from the declared topics, rights and schemas; `python -m distrl.rights` writes it to schemas/asyncapi.yaml.
Specification: https://www.asyncapi.com/docs/reference/specification/v3.0.0, Kafka's bindings in version 0.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import yaml

from distrl.broker.topics import TOPICS, Topic, declared_settings
from distrl.config import load
from distrl.rights.roles import ROLES, Role, TopicRight
from distrl.wire.cloud_events import CONTENT_TYPE
from distrl.wire.cloud_events import HEADERS as EVENT_HEADERS
from distrl.wire.confluent import FINGERPRINT, MAGIC
from distrl.wire.schemas import MARKER, Schema, catalogue

Document = dict[str, Any]

AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
"""The name that the specification gives to Avro schemas."""
SETTINGS: Final[Mapping[str, Callable[[str], Any]]] = {
    "cleanup.policy": lambda text: text.split(","),
    "retention.ms": int,
    "retention.bytes": int,
    "max.message.bytes": int,
}
"""Those that the bindings name, with their types there; the others stand in the description."""
ACTIONS: Final = {TopicRight.READ: "receive", TopicRight.WRITE: "send"}
HEADERS: Final = {
    "traceparent": "W3C Trace Context: the trace that a task or a trajectory belongs to, where tracing is on",
    FINGERPRINT: "CRC-64-AVRO fingerprint of the schema, as in single-object encoding, 16 hex digits; of values in "
    "Confluent's wire format (kafka.framing=confluent) alone",
    "distrl.claim": "number and nonce of the claim to a role (docs/adr/0017)",
    "distrl.process": "the process that claims it",
    "distrl.retry.of": "where the record was that this one repeats (`distrl dlq retry`): TOPIC/PARTITION/OFFSET",
    "distrl.retry.by": "the process that published it again",
}
_MADE: Final = "# Made from the declarations of topics, rights and schemas (`python -m distrl.rights`); do not edit.\n"


def asyncapi_yaml() -> str:
    return _MADE + yaml.safe_dump(asyncapi(), sort_keys=False, width=120)


def asyncapi() -> Document:
    """The document, with the default settings of topics."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "DistRL on Kafka: the topics of a run",
            "version": "1",
            "description": "Every record is Avro. A value is in single-object encoding: the bytes "
            f"{MARKER.hex(' ').upper()}, the CRC-64-AVRO fingerprint of the schema that it was written with (8 bytes, "
            "little-endian), the body. Where a process has the setting kafka.framing=confluent, its values are in "
            f"Confluent's wire format instead: the byte {MAGIC.hex().upper()}, the id of the schema in a registry (4 "
            f"bytes, big-endian), the body, and the fingerprint stands in the header {FINGERPRINT}. One topic may hold "
            "both forms, and a reader takes both. An operation says which role may read or write a topic. Headers are "
            "those of CloudEvents 1.0 in binary content mode (records of earlier software have none), and more. "
            "docs/wire.md has the rules.",
            "license": {"name": "Apache 2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "defaultContentType": CONTENT_TYPE,
        "channels": {topic.name: _channel(topic) for topic in TOPICS.values()},
        "operations": {name: operation for role in ROLES.values() for name, operation in _operations(role)},
        "components": {
            "messages": {str(schema).replace("/", "."): _message(schema) for schema in _schemas()}
            | {"unreadable": _unreadable()},
        },
    }


def _channel(topic: Topic) -> Document:
    settings = declared_settings(load(environ={}), topic)
    named = {name: settings[name] for name in SETTINGS if name in settings}
    others = ", ".join(f"{name}={value}" for name, value in settings.items() if name not in named)
    partitions = {} if topic.partitions is None else {"partitions": topic.partitions}
    count = "" if topic.partitions else " It has kafka.task_partitions partitions."
    return {
        "address": f"distrl.{{run}}.{topic.name}",
        "description": f"Key: {topic.key}.{count} Set as well: {others}.",
        "parameters": {"run": {"description": "name of the run (setting `run`)"}},
        "messages": {name: _to("components", "messages", name) for name in _messages_of(topic)},
        "bindings": {
            "kafka": {
                "topic": f"distrl.{{run}}.{topic.name}",
                **partitions,
                "topicConfiguration": {name: SETTINGS[name](value) for name, value in named.items()},
                "bindingVersion": "0.5.0",
            }
        },
    }


def _operations(role: Role) -> Iterator[tuple[str, Document]]:
    for right, action in ACTIONS.items():
        for topic in TOPICS.values():
            if role.may(right, topic.name):
                messages = _messages_of(topic)
                if right is TopicRight.WRITE:
                    messages = messages[-1:]  # the newest schema
                yield (
                    f"{role.name}.{right.value}.{topic.name}",
                    {
                        "action": action,
                        "channel": _to("channels", topic.name),
                        "messages": [_to("channels", topic.name, "messages", name) for name in messages],
                    },
                )


def _messages_of(topic: Topic) -> list[str]:
    """The names of what may stand in it, the oldest schema first."""
    if topic.record is None:
        return ["unreadable"]
    record = topic.record.__name__.lower()
    return [f"{each.record}.v{each.version}" for each in _schemas() if each.record == record]


def _schemas() -> list[Schema]:
    return sorted(catalogue().by_fingerprint.values(), key=lambda each: (each.record, each.version))


def _message(schema: Schema) -> Document:
    return {
        "name": schema.parsed["name"],
        "title": f"{schema.parsed['name'].removeprefix('distrl.')}, version {schema.version}",
        "summary": schema.parsed.get("doc", ""),
        "description": f"Fingerprint on the wire: {schema.fingerprint.hex(' ').upper()}.",
        "contentType": CONTENT_TYPE,
        "headers": _headers(),
        "payload": {"schemaFormat": AVRO, "schema": {"$ref": f"./{schema.record}/v{schema.version}.avsc"}},
        "bindings": {"kafka": {"key": {"type": "string", "contentEncoding": "utf-8"}, "bindingVersion": "0.5.0"}},
    }


def _unreadable() -> Document:
    return {
        "name": "unreadable",
        "summary": "A record that could not be read, with its own key, bytes and headers, and the error's.",
        "contentType": "application/octet-stream",
        "payload": {"type": "string", "format": "binary"},
    }


def _headers() -> Document:
    named = {name: {"type": "string", "description": text} for name, text in (EVENT_HEADERS | HEADERS).items()}
    return {"type": "object", "properties": named}


def _to(*path: str) -> Document:
    return {"$ref": "#/" + "/".join(path)}
