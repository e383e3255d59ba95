"""The AsyncAPI document says what is declared, and every reference in it leads somewhere."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import factories
import pytest
import yaml
from distrl.broker.claims import HEADER, PROCESS_HEADER
from distrl.broker.republish import retry_headers
from distrl.broker.topics import TOPICS, declared_settings
from distrl.config import load
from distrl.rights.asyncapi import ACTIONS, asyncapi
from distrl.rights.roles import ROLES
from distrl.telemetry.tracing import HEADER as TRACEPARENT
from distrl.types import LogPosition
from distrl.wire.cloud_events import event_headers
from distrl.wire.codec import encode
from distrl.wire.confluent import framed, unframed
from jsonschema import Draft7Validator

SCHEMAS = Path(__file__).parents[2] / "schemas"
MADE = asyncapi()


def references(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if "$ref" in part:
            yield part["$ref"]
        for each in part.values():
            yield from references(each)
    elif isinstance(part, list):
        for each in part:
            yield from references(each)


def found(reference: str) -> Any:
    if not reference.startswith("#/"):
        return json.loads((SCHEMAS / reference).read_text())
    at: Any = MADE
    for part in reference[2:].split("/"):
        at = at[part]
    return at


def test_every_reference_leads_somewhere() -> None:
    assert all(found(reference) for reference in references(MADE))


def test_every_schema_file_is_a_message() -> None:
    named = {SCHEMAS / each for each in references(MADE) if each.startswith("./")}
    assert {path.resolve() for path in named} == {path.resolve() for path in SCHEMAS.glob("*/*.avsc")}


def test_a_record_on_the_wire_begins_as_its_newest_message_says() -> None:
    (*_, newest) = found("#/channels/tasks")["messages"].values()
    message = found(newest["$ref"])
    assert message["description"].endswith(f"{encode(factories.task())[2:10].hex(' ').upper()}.")


@pytest.mark.parametrize("topic", TOPICS.values(), ids=str)
def test_a_channel_has_the_settings_that_are_declared(topic: Any) -> None:
    channel, declared = MADE["channels"][topic.name], declared_settings(load(environ={}), topic)
    said = channel["bindings"]["kafka"]["topicConfiguration"]
    text = {name: ",".join(value) if isinstance(value, list) else str(value) for name, value in said.items()}
    rest = dict(
        pair.split("=") for pair in channel["description"].partition("Set as well: ")[2].rstrip(".").split(", ")
    )
    assert text | rest == declared
    assert channel["address"] == f"distrl.{{run}}.{topic.name}"


def test_operations_are_the_rights() -> None:
    said = {
        (name.split(".")[0], operation["action"], operation["channel"]["$ref"].removeprefix("#/channels/"))
        for name, operation in MADE["operations"].items()
    }
    assert said == {
        (role.name, action, topic)
        for role in ROLES.values()
        for right, action in ACTIONS.items()
        for topic in TOPICS
        if role.may(right, topic)
    }


def test_headers_are_those_that_the_program_writes() -> None:
    events = {name for name, _ in event_headers(factories.task(), b"", "r", "tasks")}
    retried = {name for name, _ in retry_headers(LogPosition("t", 0, 0))}
    value, sent = framed(encode(factories.task()), (), 7)
    written = events | retried | {name for name, _ in sent} | {TRACEPARENT, HEADER, PROCESS_HEADER}
    assert unframed(value, sent)[0] == encode(factories.task()), "that header is needed"
    for message in MADE["components"]["messages"].values():
        if "headers" in message:
            assert set(message["headers"]["properties"]) == written


def test_both_forms_of_a_value_are_described() -> None:
    value = encode(factories.task())
    in_frame, ((header, _),) = framed(value, (), 7)
    described = MADE["info"]["description"]
    assert f"the bytes {value[:2].hex(' ').upper()}, the CRC-64-AVRO fingerprint" in described
    assert f"the byte {in_frame[:1].hex().upper()}, the id of the schema in a registry" in described
    assert f"the header {header}." in described


OFFICIAL = Path(__file__).parent / "vendor" / "asyncapi"
SPECIFICATION = Draft7Validator(json.loads((OFFICIAL / "3.0.0.json").read_text()))
"""AsyncAPI 3.0.0 with Kafka's bindings, as its authors publish it."""


def test_the_document_that_is_committed_conforms_to_the_specification() -> None:
    document = yaml.safe_load((SCHEMAS / "asyncapi.yaml").read_text())
    assert [f"{each.json_path}: {each.message}" for each in SPECIFICATION.iter_errors(document)] == []


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("info/version", 1),
        ("channels/tasks/parameters", []),
        ("channels/versions/bindings/kafka/partitions", "one"),
        ("channels/tasks/bindings/kafka/topicConfiguration/cleanup.policy", ["forget"]),
        ("operations/worker.read.tasks/action", "publish"),
        ("operations/worker.read.tasks/messages", {"$ref": "#/channels/tasks"}),
        ("components/messages/task.v1/payloads", {}),
    ],
)
def test_a_document_that_does_not_conform_is_noticed(place: str, wrong: object) -> None:
    """The schemas of a part hold in the places in which the part stands, bindings included."""
    *path, last = place.split("/")
    document = at = deepcopy(MADE)
    for part in path:
        at = at[part]
    at[last] = wrong
    assert not SPECIFICATION.is_valid(document)


def test_the_specification_is_named_licensed_and_unchanged() -> None:
    source = OFFICIAL / "SOURCE.txt"
    named = dict(re.findall(r"^sha256 of (\S+): ([0-9a-f]{64})$", source.read_text(), re.MULTILINE))
    there = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in OFFICIAL.iterdir()}
    del there[source.name]
    assert named == there
    assert "LICENSE" in named
