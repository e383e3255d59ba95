"""Validates `kafka.client`: any setting of librdkafka but those that a guarantee of DistRL relies on.

Pure: broker/client_settings.py asks librdkafka whether it knows a setting and accepts its value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import SecretStr

Value = str | SecretStr
"""librdkafka reads every setting from text. A secret is wrapped, so that nothing prints it."""

SECRET = re.compile(r"password|passphrase|secret|key\.pem|oauthbearer\.config|kinit\.cmd")
"""Settings whose values are never shown: librdkafka's sensitive ones, and commands that may hold a secret."""

NO_PASSWORD_MECHANISMS = frozenset(("OAUTHBEARER", "GSSAPI"))
"""Mechanisms that log in by settings of kafka.client, without user and password."""

_ONCE = "a record must be in the log once, in order, and be acknowledged by every in-sync replica"
_FOR_EVER = "a finished trajectory is never given up, however long a broker is away"
_TRANSACTION = "the broker fences an older learner by it"
_COMMITTED = "a task is committed once its trajectory is acknowledged, and not before"
_MEMBERS = "workers share their tasks by it"
_REPLACED = "a client that is stuck is noticed by its statistics, and replaced"
_VISIBLE = "which records a reader may see decides what is learned"

REFUSED: Mapping[str, str] = {
    "bootstrap.servers": "it is the setting kafka.bootstrap",
    "metadata.broker.list": "it is the setting kafka.bootstrap",
    "security.protocol": "it is the setting kafka.security_protocol",
    "message.max.bytes": "it is the setting kafka.max_record_bytes",
    "allow.auto.create.topics": "topics are made as declared (`distrl topics ensure`), never by a reader",
    "enable.idempotence": _ONCE,
    "enable.gapless.guarantee": _ONCE,
    "acks": _ONCE,
    "request.required.acks": _ONCE,
    "max.in.flight": _ONCE,
    "max.in.flight.requests.per.connection": _ONCE,
    "retries": _FOR_EVER,
    "message.send.max.retries": _FOR_EVER,
    "message.timeout.ms": _FOR_EVER,
    "delivery.timeout.ms": _FOR_EVER,
    "transactional.id": _TRANSACTION,
    "transaction.timeout.ms": _TRANSACTION,
    "group.id": f"{_MEMBERS}: it is made of `run` and worker.group",
    "group.instance.id": _MEMBERS,
    "group.protocol": _MEMBERS,
    "group.protocol.type": _MEMBERS,
    "group.remote.assignor": _MEMBERS,
    "partition.assignment.strategy": _MEMBERS,
    "session.timeout.ms": _MEMBERS,
    "heartbeat.interval.ms": _MEMBERS,
    "max.poll.interval.ms": _MEMBERS,
    "enable.auto.commit": _COMMITTED,
    "auto.commit.enable": _COMMITTED,
    "enable.auto.offset.store": _COMMITTED,
    "auto.offset.reset": _VISIBLE,
    "isolation.level": _VISIBLE,
    "enable.partition.eof": _VISIBLE,
    "topic.metadata.propagation.max.ms": _VISIBLE,
    "statistics.interval.ms": _REPLACED,
    "logger": "it is code, which settings cannot hold",
    "default.topic.config": "its settings are given one by one",
}
"""Setting -> why it is refused."""


class PropertyError(ValueError):
    """A setting of librdkafka that kafka.client cannot hold. name: empty for kafka.client itself. fix: the hint."""

    def __init__(self, name: str, what: str, fix: str) -> None:
        super().__init__(what)
        self.name = name
        self.fix = fix


def is_secret(name: str) -> bool:
    return SECRET.search(name) is not None


def client_settings(given: Any) -> dict[str, Value]:
    """`given` as librdkafka takes it: text, secrets wrapped. Raises PropertyError, which never shows a value."""
    if not isinstance(given, Mapping):
        raise PropertyError(
            "", "should be a mapping of librdkafka's settings", "kafka.client: {ssl.key.location: PATH}"
        )
    return {_name(name): _text(str(name), value) for name, value in given.items()}


def _name(name: Any) -> str:
    text = str(name)
    if text in REFUSED:
        raise PropertyError(text, f"cannot be set: {REFUSED[text]}", "leave it out of kafka.client")
    if text.endswith("_cb") or text.startswith("on_"):
        raise PropertyError(
            text, "cannot be set: it is code, which settings cannot hold", "leave it out of kafka.client"
        )
    return text


def _text(name: str, value: Any) -> Value:
    if is_secret(name):
        if not isinstance(value, str | SecretStr):
            raise PropertyError(name, "should be text, and YAML reads it as something else", "put it in quotes")
        return value if isinstance(value, SecretStr) else SecretStr(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        shape = (
            "write its whole name with dots, as in ssl.key.location" if isinstance(value, Mapping) else "give a text"
        )
        raise PropertyError(name, "should be text, a number, true or false", shape)
    return value
