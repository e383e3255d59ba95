"""Every version of a schema can be read as every other one (FULL_TRANSITIVE), so that any log stays readable."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import avro.schema
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from distrl.wire.schemas import catalogue, schema_folder


def misfits(schemas: list[Any]) -> list[str]:
    """Why some of `schemas` (JSON as Python) cannot be read as some other, empty where all can.

    The checker of avro compares names without their namespace, hence the comparison of full names.
    """
    parsed = [avro.schema.parse(json.dumps(schema)) for schema in schemas]
    found = [
        f"{one.fullname} is not {two.fullname}" for one, two in permutations(parsed, 2) if one.fullname != two.fullname
    ]
    for reader, writer in permutations(parsed, 2):
        result = ReaderWriterCompatibilityChecker().get_compatibility(reader, writer)
        if result.compatibility is not SchemaCompatibilityType.compatible:
            found += sorted(result.messages)
    return found


@pytest.mark.parametrize("record", sorted(catalogue().newest))
def test_landed_versions_can_be_read_as_each_other(record: str) -> None:
    files: list[Path] = sorted((schema_folder() / record).glob("v*.avsc"))
    assert misfits([json.loads(file.read_text()) for file in files]) == []


def thing(*fields: dict[str, Any], namespace: str = "distrl") -> dict[str, Any]:
    return {"type": "record", "name": "Thing", "namespace": namespace, "fields": list(fields)}


A = {"name": "a", "type": "long"}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        (thing(A, {"name": "b", "type": "long", "default": 0}), True),
        (thing({"name": "a", "type": "long", "default": 1}), True),
        (thing(A, {"name": "b", "type": "long"}), False),
        (thing(), False),
        (thing({"name": "a", "type": "string"}), False),
        (thing({"name": "a", "type": "double"}), False),
        (thing(A, namespace="elsewhere"), False),
    ],
)
def test_the_check_tells_a_change_that_fits_from_one_that_does_not(change: dict[str, Any], fits: bool) -> None:
    assert (misfits([thing(A), change]) == []) is fits


def test_the_check_is_transitive() -> None:
    """Each step fits the one before; the third cannot read the first."""
    versions = [thing(A), thing({"name": "a", "type": "long", "default": 0}), thing()]
    assert misfits(versions[:2]) == []
    assert misfits(versions[1:]) == []
    assert misfits(versions) != []
