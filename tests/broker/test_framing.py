"""Values in Confluent's wire format, with the registry's own client on both sides and a registry over HTTP between."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread

import fastavro
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from distrl.broker import framing
from distrl.broker.framing import registered_text, sent_as
from distrl.config import KafkaSettings, load
from distrl.errors import BrokerError, ConfigError
from distrl.types import Record
from distrl.wire.codec import encode
from distrl.wire.confluent import FINGERPRINT
from distrl.wire.convert import NAMES
from distrl.wire.schemas import Schema, catalogue, fingerprint, schema_text
from registry_server import Registry, serving
from wire.records import EXAMPLES


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as made:
        yield made


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    framing._registered.cache_clear()
    yield
    framing._registered.cache_clear()


def settings(url: str, *more: str) -> KafkaSettings:
    sets = ["kafka.framing=confluent", f"kafka.schema_registry_url={url}", *more]
    return load(sets=sets, environ={}).kafka


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_the_registrys_own_client_reads_a_framed_record(registry: Registry, record: Record) -> None:
    value, headers = sent_as(settings(registry.url))(encode(record), (("a", b"b"),))
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    body = BytesIO(encode(record))
    body.seek(10)
    written = fastavro.schemaless_reader(body, catalogue().newest[NAMES[type(record)]].parsed)
    assert read(value, SerializationContext("any", MessageField.VALUE)) == written
    assert dict(headers) == {"a": b"b", FINGERPRINT: encode(record)[2:10].hex().encode()}


def test_schemas_are_registered_once_and_before_the_first_record(registry: Registry) -> None:
    first, again = sent_as(settings(registry.url)), sent_as(settings(registry.url))
    every = [schema.parsed["name"] for schema in catalogue().by_fingerprint.values()]
    assert registry.subjects == every
    for name, newest in catalogue().newest.items():  # which is what "latest" means to others
        last = max(place for place, subject in enumerate(registry.subjects) if subject == newest.parsed["name"])
        assert list(catalogue().by_fingerprint.values())[last] is newest, name
    for record in EXAMPLES * 2:
        first(encode(record), ())
        again(encode(record), ())
    assert registry.subjects == every


def test_a_record_of_an_older_schema_is_framed_under_its_own_id(registry: Registry) -> None:
    form = sent_as(settings(registry.url))
    oldest = next(each for each in catalogue().by_fingerprint.values() if str(each) == "trajectory/v1")
    value, _ = form(oldest.header + b"body", ())
    assert value is not None
    number = int.from_bytes(value[1:5], "big")
    assert value == b"\0" + number.to_bytes(4, "big") + b"body"
    assert '"unmet"' not in registry.schemas[number - 1]
    assert json.loads(registry.schemas[number - 1])["name"] == "Trajectory"


@pytest.mark.parametrize("value", [None, b"", b"text", b"\xc3\x01" + b"?" * 20])
def test_what_has_none_of_our_schemas_is_sent_as_it_is(registry: Registry, value: bytes | None) -> None:
    assert sent_as(settings(registry.url))(value, (("a", None),)) == (value, (("a", None),))


def test_by_default_nothing_is_framed_and_no_registry_is_asked() -> None:
    value = encode(EXAMPLES[0])
    assert sent_as(load(environ={}).kafka)(value, ()) == (value, ())


def test_a_registry_that_asks_who_one_is_is_told(registry: Registry) -> None:
    registry.user = "learner:hunter2"
    user = ("kafka.schema_registry_username=learner", "kafka.schema_registry_password=hunter2")
    with pytest.raises(BrokerError) as refused:
        sent_as(settings(registry.url))
    assert refused.value.where == "kafka.schema_registry_url"
    assert "who are you? (40101)" in refused.value.what
    assert "kafka.schema_registry_username" in refused.value.hint
    sent_as(settings(registry.url, *user))
    assert registry.subjects


def test_a_registry_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Registry()) as gone:
        url = gone.url
    with pytest.raises(BrokerError) as refused:
        sent_as(settings(url))
    assert f"the registry at {url} gives no id of " in refused.value.what
    assert "kafka.framing=none" in refused.value.hint


@pytest.mark.parametrize("answer", [b"<html>sign in</html>", b"", b"{}", b"[]"])
def test_what_answers_and_is_no_registry_is_named(answer: bytes) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(BrokerError, match="is no schema registry") as refused:
            sent_as(settings(f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()
    assert refused.value.where == "kafka.schema_registry_url"


def test_a_certificate_authority_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        sent_as(settings("https://127.0.0.1:1", f"kafka.schema_registry_ca={tmp_path}/none.pem"))
    assert refused.value.where == "kafka.schema_registry_ca"


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["kafka.schema_registry_username=a:b", "kafka.schema_registry_password=c"], "has a colon"),
        (["kafka.schema_registry_ca=ca.pem"], "is for an https:// address"),
    ],
)
def test_settings_that_would_be_taken_for_others_are_refused(more: list[str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        settings("http://127.0.0.1:1", *more)


def test_without_the_extra_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith("confluent_kafka.schema_registry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "authlib", None)
    monkeypatch.setitem(sys.modules, "authlib.integrations.httpx_client", None)
    with pytest.raises(ConfigError) as refused:
        sent_as(settings("http://127.0.0.1:1"))
    assert refused.value.where == "kafka.framing"
    assert "'.[registry]'" in refused.value.hint


@pytest.mark.parametrize("schema", catalogue().by_fingerprint.values(), ids=str)
def test_what_is_registered_has_the_fingerprint_and_no_default_that_a_registry_stumbles_over(schema: Schema) -> None:
    text = registered_text(schema)
    assert '"{}"' not in text
    assert fingerprint(json.loads(text)) == fingerprint(json.loads(schema_text(schema)))
