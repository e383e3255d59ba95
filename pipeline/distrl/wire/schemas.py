"""The Avro contracts: `schemas/<record>/v<N>.avsc`, loaded once and found by the fingerprint that a payload carries.

A landed file is never edited: a change is a new version, and `schemas/lock.json` holds what has landed (lock.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import fastavro.schema

from distrl.errors import WireError
from distrl.shipped import shipped_folder

MARKER = b"\xc3\x01"
"""The first two bytes of a record in single-object encoding (Avro specification, "Single-object encoding")."""

NAME = re.compile(r"v([1-9][0-9]*)\.avsc")

NOT_AVRO = (ValueError, KeyError, TypeError, RecursionError, fastavro.schema.SchemaParseException)
"""What json and fastavro raise for an invalid file: KeyError for an enum without symbols, TypeError for a number."""


@dataclass(frozen=True, slots=True)
class Schema:
    """One version of one record.

    record: the folder's name, e.g. "trajectory".
    parsed: for fastavro; never changed.
    header: the 10 bytes that a payload of it starts with.
    """

    record: str
    version: int
    parsed: dict[str, Any]
    header: bytes

    @property
    def fingerprint(self) -> bytes:
        """8 bytes: CRC-64-AVRO of the parsing canonical form, little-endian as on the wire."""
        return self.header[len(MARKER) :]

    def __str__(self) -> str:
        return f"{self.record}/v{self.version}"


def schema_folder() -> Path:
    """`distrl/schemas` beside the installed code, or `schemas` at the top of a checkout.

    Raises WireError if neither exists.
    """
    return shipped_folder("schemas", WireError)


def schema_text(schema: Schema) -> str:
    """The file of a shipped schema, as it was landed."""
    return (schema_folder() / schema.record / f"v{schema.version}.avsc").read_text(encoding="utf-8")


def fingerprint(schema: Any) -> bytes:
    """CRC-64-AVRO of the parsing canonical form of `schema` (JSON as Python), 8 bytes little-endian."""
    canonical = fastavro.schema.to_parsing_canonical_form(schema)
    return bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))


def read_schema(file: Path) -> Schema:
    """The schema in `<record>/v<N>.avsc`. Raises WireError for an invalid file, or if its name does not match."""
    match = NAME.fullmatch(file.name)
    if match is None:
        raise WireError(str(file), "a schema file is named v<N>.avsc", "rename it")
    try:
        raw = json.loads(file.read_text(encoding="utf-8"))
        parsed = fastavro.schema.parse_schema(raw)
    except NOT_AVRO as error:
        why = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise WireError(str(file), f"is no Avro schema ({why})", "fix the file") from None
    expected = f"distrl.{file.parent.name.capitalize()}"
    if not isinstance(parsed, dict) or parsed.get("name") != expected:
        raise WireError(str(file), f"does not define {expected}", "name the record after its folder")
    return Schema(file.parent.name, int(match[1]), parsed, MARKER + fingerprint(raw))


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Every schema that this reader knows.

    newest: record -> the schema that it is written with, and that older versions are resolved to.
    by_fingerprint: fingerprint in a payload's header -> schema.
    """

    newest: Mapping[str, Schema]
    by_fingerprint: Mapping[bytes, Schema]


def read_catalogue(folder: Path) -> Catalogue:
    """Every `<record>/v<N>.avsc` under `folder`. Raises WireError for an invalid file."""
    schemas = sorted((read_schema(file) for file in folder.glob("*/*.avsc")), key=lambda s: (s.record, s.version))
    return Catalogue(
        newest={schema.record: schema for schema in schemas},
        # Versions that differ only in documentation share a fingerprint: the newer one reads both.
        by_fingerprint={schema.fingerprint: schema for schema in schemas},
    )


@cache
def catalogue() -> Catalogue:
    """The schemas that are shipped with this code."""
    return read_catalogue(schema_folder())
