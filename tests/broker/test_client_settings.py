"""`kafka.client`: what librdkafka takes reaches every client; what it refuses is told by the name of the setting."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from distrl.broker import connect, consumer, fenced, group, producer, reader
from distrl.broker.client_settings import check_client, passed
from distrl.broker.connect import admin
from distrl.broker.producer import RecordProducer
from distrl.config import Config, KafkaSettings, load
from distrl.errors import ConfigError

NOBODY = "127.0.0.1:1"


def _nobody() -> fenced.FencedError:
    raise AssertionError("nobody is fenced")


def kafka(*sets: str, protocol: str = "PLAINTEXT") -> KafkaSettings:
    every = [f"kafka.bootstrap={NOBODY}", f"kafka.security_protocol={protocol}", *sets]
    return load(sets=every, environ={}).kafka


def refused(section: KafkaSettings) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        check_client(section)
    return caught.value


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("ssl.key.locaton=/key", "No such configuration property"),
        ("socket.timeout.ms=soon", "Invalid value"),
        ("socket.timeout.ms=1", "outside allowed range 10..300000"),
        ("compression.type=zip", 'Invalid value "zip"'),
        ("fetch.max.bytes=3", "must be >= `message.max.bytes`"),
        ("builtin.features=x", "builtin.features"),
    ],
)
def test_what_librdkafka_refuses_is_reported_by_its_name_before_anything_starts(item: str, said: str) -> None:
    section = kafka(f"kafka.client.{item}", "kafka.client.client.rack=a")
    for use in (check_client, admin, lambda k: passed(k, {})):
        with pytest.raises(ConfigError) as caught:
            use(section)
        assert caught.value.where == f"kafka.client.{item.partition('=')[0]}"
        assert said in caught.value.what
        assert "CONFIGURATION.md" in caught.value.hint


def test_files_are_looked_at_by_librdkafka_too(tmp_path: Path) -> None:
    error = refused(kafka(f"kafka.client.ssl.key.location={tmp_path}/none.pem", protocol="SSL"))
    assert error.where == "kafka.client.ssl.key.location"


def test_two_faults_at_once_name_the_one_that_librdkafka_speaks_of() -> None:
    error = refused(kafka("kafka.client.no.such=1", "kafka.client.nor.this=2"))
    assert error.where in ("kafka.client.no.such", "kafka.client.nor.this")


def test_a_mechanism_that_this_librdkafka_lacks_is_reported_as_such() -> None:
    section = kafka(
        "kafka.client.sasl.mechanism=NONSENSE",
        "kafka.client.sasl.username=u",
        "kafka.client.sasl.password=hunter2",
        protocol="SASL_PLAINTEXT",
    )
    error = refused(section)
    assert error.where == "kafka.client.sasl.mechanism"
    assert "hunter2" not in str(error)


def test_no_secret_is_repeated_though_librdkafka_may() -> None:
    error = refused(kafka("kafka.client.ssl.key.pem=hunter2", protocol="SSL"))
    assert error.where == "kafka.client.ssl.key.pem"
    assert "hunter2" not in str(error)


def test_every_client_gets_them_over_its_own() -> None:
    section = kafka("kafka.client.linger.ms=7", "kafka.client.client.rack=a")
    made = passed(section, {"linger.ms": 5, "acks": "all"})
    assert made == {"linger.ms": "7", "acks": "all", "client.rack": "a"}


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_mechanism_of_kafka_client_replaces_that_of_the_section(name: str) -> None:
    section = kafka(
        f"kafka.client.{name}=OAUTHBEARER",
        "kafka.client.sasl.oauthbearer.config=principal=admin",
        protocol="SASL_PLAINTEXT",
    )
    made = passed(section, {"sasl.mechanism": "SCRAM-SHA-512"})
    assert [made[each] for each in made if each.startswith("sasl.mech")] == ["OAUTHBEARER"]


def test_a_producer_with_impossible_settings_is_refused_by_the_same_words() -> None:
    config = load(sets=[f"kafka.bootstrap={NOBODY}", "kafka.client.no.such=1"], environ={})
    with pytest.raises(ConfigError, match=r"^kafka\.client\.no\.such: "):
        RecordProducer(config, "a-test")


def _reader(config: Config) -> None:
    with suppress(AttributeError):  # what stands in for a consumer cannot be assigned partitions
        reader.LogReader(config, "tasks")


CLIENTS: dict[str, tuple[Any, str, Callable[[Config], object]]] = {
    "admin": (connect, "AdminClient", lambda config: admin(config.kafka)),
    "producer": (producer, "Producer", lambda config: RecordProducer(config, "a-test").close(0)),
    "fenced producer": (fenced, "Producer", lambda config: fenced.FencedProducer(config, "a", "a topic", _nobody)),
    "tasks": (consumer, "Consumer", consumer.TaskConsumer),
    "reader": (reader, "Consumer", _reader),
    "offsets of the workers": (group, "Consumer", group.GroupOffsets),
}


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_is_made_with_what_kafka_client_holds(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module, kind, make = CLIENTS[name]
    made: dict[str, Any] = {}

    class Made:
        def __init__(self, given: dict[str, Any]) -> None:
            made.update(given)

        def poll(self, timeout_s: float) -> int:
            return 0

        flush = poll

    monkeypatch.setattr(module, kind, Made)
    monkeypatch.setattr(reader, "retained", lambda config, topic: {0: (0, 0)})
    make(load(sets=[f"kafka.bootstrap={NOBODY}", "kafka.client.client.rack=a"], environ={}))
    assert made["client.rack"] == "a"
    assert made["bootstrap.servers"] == NOBODY


def test_nobody_but_connect_needs_to_think_of_what_kafka_client_holds() -> None:
    """Each client did so once by itself, and one forgot it."""
    package = Path(connect.__file__).parents[1]
    users = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in (passed.__module__, "distrl.broker")
        if "passed" in {alias.name for alias in node.names}
    }
    assert users == {"broker/connect.py"}
