"""The AsyncAPI document says what is declared, and every reference in it leads somewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import factories
import pytest
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
    written = events | retried | {TRACEPARENT, HEADER, PROCESS_HEADER}
    for message in MADE["components"]["messages"].values():
        if "headers" in message:
            assert set(message["headers"]["properties"]) == written
