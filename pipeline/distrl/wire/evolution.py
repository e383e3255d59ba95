"""Finds versions of a record that cannot read each other, in which field, and why (Avro, "Schema Resolution").

Pure. Types are in fastavro's parsed form: names are full, and a type is written out at its first use.
tests/wire/test_evolution.py compares the results with the checker of Avro's own Python package, which neither names the
field nor compares namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from distrl.wire.schemas import Schema

PROMOTED: Mapping[str, frozenset[str]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""Written primitive -> the primitives that it may be read as."""

Types = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Misfit:
    """`reader` cannot read what `writer` wrote in `field`, a path: steps[] is an item of steps, params{} a value."""

    reader: str
    writer: str
    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.reader} cannot read what {self.writer} wrote: {self.field}: {self.why}"


def misfits(schemas: Sequence[Schema]) -> list[Misfit]:
    """Every way in which a version of one record cannot read another (FULL_TRANSITIVE: each pair, both ways)."""
    return [
        Misfit(str(reader), str(writer), field, why)
        for reader, writer in permutations(schemas, 2)
        for field, why in resolve(reader.parsed, writer.parsed)
    ]


def resolve(reader: Any, writer: Any) -> list[tuple[str, str]]:
    """(path of the field, why) for everything of `writer` that `reader` cannot read."""
    return list(_Resolution(defined(reader), defined(writer)).of(reader, writer, ""))


def defined(schema: Any) -> dict[str, Mapping[str, Any]]:
    """Every record, enum and fixed that `schema` defines, by its full name."""
    if isinstance(schema, list):
        return {name: found for part in schema for name, found in defined(part).items()}
    if not isinstance(schema, dict):
        return {}
    named: dict[str, Mapping[str, Any]] = (
        {schema["name"]: schema} if schema["type"] in ("record", "enum", "fixed") else {}
    )
    for part in (*(field["type"] for field in schema.get("fields", ())), schema.get("items"), schema.get("values")):
        named |= defined(part)
    if isinstance(schema["type"], dict | list):
        named |= defined(schema["type"])
    return named


class _Resolution:
    """One reader against one writer. A pair of records that recurs, as in a recursive type, is checked once."""

    def __init__(self, reader: Types, writer: Types) -> None:
        self._reader, self._writer = reader, writer
        self._seen: set[tuple[str, str]] = set()

    def of(self, reader: Any, writer: Any, path: str) -> Iterator[tuple[str, str]]:
        if isinstance(writer, list):
            for branch in writer:
                yield from self.of(reader, branch, path)
        elif isinstance(reader, list):
            if all(self._misfit(branch, writer) for branch in reader):
                yield path or "/", f"{_said(writer)} is none of {', '.join(map(_said, reader))}"
        else:
            yield from self._single(_resolved(reader, self._reader), _resolved(writer, self._writer), path)

    def _misfit(self, reader: Any, writer: Any) -> bool:
        seen = set(self._seen)
        found = any(True for _ in self.of(reader, writer, ""))
        self._seen = seen
        return found

    def _single(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
        kind, written = reader["type"], writer["type"]
        if kind != written:
            if kind not in PROMOTED.get(written, ()):
                yield path or "/", f"{_said(writer)} cannot be read as {_said(reader)}"
        elif kind in ("array", "map"):
            part, mark = ("items", "[]") if kind == "array" else ("values", "{}")
            yield from self.of(reader[part], writer[part], path + mark)
        elif kind in ("record", "enum", "fixed"):
            if reader["name"] != writer["name"]:
                yield path or "/", f"{writer['name']} is renamed to {reader['name']}: names and namespaces stay"
            elif kind == "record":
                yield from self._fields(reader, writer, path)
            elif kind == "enum":
                unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
                if unknown and "default" not in reader:
                    yield path or "/", f"{reader['name']} has no default for the symbols {', '.join(unknown)}"
            elif reader["size"] != writer["size"]:
                yield path or "/", f"{writer['size']} bytes are not {reader['size']}"

    def _fields(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
        pair = (reader["name"], writer["name"])
        if pair in self._seen:
            return
        self._seen.add(pair)
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [name for name in (field["name"], *field.get("aliases", ())) if name in written]
            where = f"{path}.{field['name']}" if path else field["name"]
            if names:
                yield from self.of(field["type"], written[names[0]]["type"], where)
            elif "default" not in field:
                yield where, "is not written there, and has no default to be read as"


def _resolved(schema: Any, types: Types) -> Mapping[str, Any]:
    """A type as a dict, whether it is written out, named or primitive."""
    if isinstance(schema, str):
        return types.get(schema, {"type": schema})
    if isinstance(schema["type"], dict | list):
        return _resolved(schema["type"], types)
    found: Mapping[str, Any] = schema
    return found


def _said(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return f"a union of {', '.join(map(_said, schema))}"
    return str(schema.get("name") or _said(schema["type"]))
