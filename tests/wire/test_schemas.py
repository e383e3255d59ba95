"""The schemas say what types.py says, their fingerprints are Avro's, and what has landed is as it landed."""

from __future__ import annotations

import dataclasses
import json
from enum import StrEnum
from io import BytesIO
from pathlib import Path
from typing import Any

import avro.schema
import fastavro
import pytest
from distrl import types
from distrl.errors import WireError
from distrl.types import ActionKind, HeldBack, Outcome, Split
from distrl.wire.schemas import catalogue, fingerprint, read_catalogue, read_schema, schema_folder

from tests.wire.records import KINDS

FILES = sorted(schema_folder().glob("*/*.avsc"))


def definitions(schema: Any) -> dict[str, Any]:
    """Every record and enum that `schema` (JSON as Python) defines, by name."""
    if isinstance(schema, list):
        return {name: found for part in schema for name, found in definitions(part).items()}
    if not isinstance(schema, dict):
        return {}
    found = {schema["name"]: schema} if schema["type"] in ("record", "enum") else {}
    for part in [field["type"] for field in schema.get("fields", [])] + [schema.get("items"), schema.get("values")]:
        found |= definitions(part)
    return found


def test_every_record_has_a_schema() -> None:
    assert {kind.__name__.lower() for kind in KINDS} == set(catalogue().newest)


@pytest.mark.parametrize("record", sorted(catalogue().newest))
def test_the_newest_schema_has_the_fields_of_the_types_in_their_order(record: str) -> None:
    file = schema_folder() / record / f"v{catalogue().newest[record].version}.avsc"
    for name, schema in definitions(json.loads(file.read_text())).items():
        noun = getattr(types, name)
        assert schema["doc"], f"{name} says what it is"
        if schema["type"] == "enum":
            assert schema["symbols"] == [symbol.value for symbol in noun]
            assert schema["default"] in schema["symbols"]
        else:
            assert [field["name"] for field in schema["fields"]] == [field.name for field in dataclasses.fields(noun)]
            assert all(field["doc"] for field in schema["fields"])


@pytest.mark.parametrize(
    ("canonical", "number"),
    [
        ('"null"', 7195948357588979594),
        ('"boolean"', -6970731678124411036),
        ('"int"', 8247732601305521295),
        ('"long"', -3434872931120570953),
        ('"float"', 5583340709985441680),
        ('"double"', -8181574048448539266),
        ('"bytes"', 5746618253357095269),
        ('"string"', -8142146995180207161),
    ],
)
def test_fingerprints_are_those_of_the_specification(canonical: str, number: int) -> None:
    """The numbers are from schema-tests.txt of the Avro project."""
    assert fingerprint(json.loads(canonical)) == number.to_bytes(8, "little", signed=True)


@pytest.mark.parametrize("file", FILES, ids=str)
def test_fingerprints_are_those_of_the_reference_implementation(file: Path) -> None:
    reference = avro.schema.parse(file.read_text())
    assert fastavro.schema.to_parsing_canonical_form(json.loads(file.read_text())) == reference.canonical_form
    assert read_schema(file).fingerprint == reference.fingerprint("CRC-64-AVRO")
    assert read_schema(file).header == b"\xc3\x01" + reference.fingerprint("CRC-64-AVRO")


def test_no_two_schemas_share_a_fingerprint() -> None:
    assert len(catalogue().by_fingerprint) == len(FILES)


@pytest.mark.parametrize(
    ("noun", "fallback"),
    [(ActionKind, ActionKind.INVALID), (Split, Split.TEST), (Outcome, Outcome.UNKNOWN), (HeldBack, HeldBack.NO)],
)
def test_a_symbol_of_the_future_is_read_as_the_harmless_one(noun: type[StrEnum], fallback: StrEnum) -> None:
    schema = definitions(json.loads((schema_folder() / f"{catalogue().newest['trajectory']}.avsc").read_text()))[
        noun.__name__
    ]
    future = fastavro.parse_schema(schema | {"symbols": [*schema["symbols"], "unheard_of"]})
    out = BytesIO()
    fastavro.schemaless_writer(out, future, "unheard_of")
    out.seek(0)
    assert fastavro.schemaless_reader(out, future, fastavro.parse_schema(dict(schema))) == fallback


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "thing").mkdir()
    return tmp_path


def write(folder: Path, name: str = "thing/v1.avsc", **changes: Any) -> None:
    schema = {"type": "record", "name": "Thing", "namespace": "distrl", "fields": [{"name": "a", "type": "long"}]}
    (folder / name).write_text(json.dumps(schema | changes))


def test_the_newest_schema_is_the_one_of_the_highest_number(folder: Path) -> None:
    for number in (1, 2, 10):
        write(folder, f"thing/v{number}.avsc", fields=[{"name": f"a{number}", "type": "long"}])
    assert read_catalogue(folder).newest["thing"].version == 10


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("thing/v1.avsc", "{"),
        ("thing/v1.avsc", '{"type": "record", "name": "Thing"}'),
        ("thing/v1.avsc", '{"type": "record", "name": "distrl.Other", "fields": []}'),
        ("thing/v1.avsc", '"string"'),
        ("thing/v1.avsc", '{"type": "nonsense"}'),
        ("thing/v1.avsc", "5"),
        ("thing/v1.avsc", '{"name": "distrl.Thing"}'),
        ("thing/v1.avsc", '{"type": "record", "name": "distrl.Thing", "fields": 5}'),
        ("thing/v1.avsc", '{"type": "enum", "name": "distrl.Thing"}'),
        pytest.param("thing/v1.avsc", "[" * 100_000, id="nested too deeply"),
        ("thing/first.avsc", '{"type": "record", "name": "distrl.Thing", "fields": []}'),
    ],
)
def test_a_file_that_is_no_schema_is_an_error_that_names_it(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)
    with pytest.raises(WireError, match=name):
        read_catalogue(folder)
