"""Checks every schema against the rules that keep old logs readable."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from distrl.errors import WireError
from distrl.wire.evolution import defined, misfits
from distrl.wire.lock import Lock, entry_of, read_lock
from distrl.wire.schemas import Schema, read_schema

DEFAULTS: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),), "boolean": (bool,), "float": (int, float), "double": (int, float), "string": (str,),
    "bytes": (str,),
}  # fmt: skip
"""The JSON type of a primitive's default, except for integers, which have bounds."""


@dataclass(frozen=True, slots=True)
class SchemaProblem:
    """What is wrong with which schema, and how to fix it. new: nothing is wrong, it only has not landed yet."""

    where: str
    what: str
    hint: str
    new: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n  hint: {self.hint}"


@dataclass(frozen=True, slots=True)
class SchemaReport:
    """schemas: all valid ones, by record and version. problems: empty if everything may land."""

    schemas: tuple[Schema, ...]
    landed: Lock
    problems: tuple[SchemaProblem, ...]


def check(folder: Path) -> SchemaReport:
    """Check every `<record>/v<N>.avsc` under `folder` and its lock file. Raises WireError for an invalid lock.

    A record keeps its name and namespace; any version reads any other (FULL_TRANSITIVE); an enum has a default, as
    which later symbols are read; a field's default has its type at every level, since older records are read with it;
    no item of an array takes zero bytes, so that a length cannot exceed the payload's bytes; a landed file does not
    change.
    """
    landed = read_lock(folder)
    problems: list[SchemaProblem] = []
    schemas: list[Schema] = []
    for file in sorted(folder.glob("*/*.avsc")):
        try:
            schemas.append(read_schema(file))
        except WireError as error:
            problems.append(SchemaProblem(error.where, error.what, error.hint))
    schemas.sort(key=lambda schema: (schema.record, schema.version))
    by_record: Mapping[str, list[Schema]] = defaultdict(list)
    for schema in schemas:
        by_record[schema.record].append(schema)
        problems += _in_itself(schema)
    for versions in by_record.values():
        problems += [
            SchemaProblem(m.reader, str(m).partition(" ")[2], _hint(m.reader, m.writer)) for m in misfits(versions)
        ]
    problems += _against_the_lock(folder, landed)
    return SchemaReport(tuple(schemas), landed, tuple(problems))


def _in_itself(schema: Schema) -> Iterator[SchemaProblem]:
    types = defined(schema.parsed)
    for name, found in types.items():
        if found["type"] == "enum" and "default" not in found:
            yield SchemaProblem(
                str(schema),
                f"enum {name} has no default: a reader could not read a symbol that is added later",
                'give it a "default", the harmless one of its symbols',
            )
        for field in found.get("fields", ()):
            if "default" in field and not _holds(field["type"], field["default"], types):
                yield SchemaProblem(
                    str(schema),
                    f"the default of {name}.{field['name']} is {field['default']!r}, which its type cannot hold: "
                    "an older record would be read with it",
                    "give the field a default of its own type",
                )
    for path in _empty_items(schema.parsed, schema.parsed["name"], types):
        yield SchemaProblem(
            str(schema),
            f"{path} holds items of no bytes: a length of a few bytes could claim billions of them",
            "count them in a long instead",
        )


def _empty_items(schema: Any, path: str, types: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if isinstance(schema, list):
        for part in schema:
            yield from _empty_items(part, path, types)
    elif isinstance(schema, dict):
        if schema["type"] == "array" and _is_empty(schema["items"], types):
            yield path
        for field in schema.get("fields", ()):
            yield from _empty_items(field["type"], f"{path}.{field['name']}", types)
        yield from _empty_items(schema.get("items"), f"{path}[]", types)
        yield from _empty_items(schema.get("values"), f"{path}{{}}", types)


def _holds(schema: Any, value: Any, types: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether a type can hold a default, given as JSON. fastavro checks mostly only the outermost type."""
    if isinstance(schema, list):
        return any(_holds(part, value, types) for part in schema)
    found = types.get(schema, {"type": schema}) if isinstance(schema, str) else schema
    match found["type"]:
        case "array":
            return isinstance(value, list) and all(_holds(found["items"], each, types) for each in value)
        case "map":
            return isinstance(value, dict) and all(_holds(found["values"], each, types) for each in value.values())
        case "record":  # must be complete: missing fields are not filled in by their own defaults
            return isinstance(value, dict) and all(
                field["name"] in value and _holds(field["type"], value[field["name"]], types)
                for field in found["fields"]
            )
        case "enum":
            return value in found["symbols"]
        case "fixed":
            return isinstance(value, str) and len(value) == found["size"]
        case "int" | "long" as kind:
            bound = 2 ** (31 if kind == "int" else 63)
            return type(value) is int and -bound <= value < bound
        case primitive:
            return type(value) in DEFAULTS[primitive]


def _is_empty(schema: Any, types: Mapping[str, Mapping[str, Any]], within: frozenset[str] = frozenset()) -> bool:
    """Whether its Avro form may have no bytes: null, and a record or fixed of nothing else."""
    if isinstance(schema, list):
        return False  # the branch's number
    found = types.get(schema, {"type": schema}) if isinstance(schema, str) else schema
    if found["type"] == "record":
        deeper = within | {found["name"]}
        return found["name"] not in within and all(_is_empty(f["type"], types, deeper) for f in found["fields"])
    return bool(found["type"] == "null" or (found["type"] == "fixed" and found["size"] == 0))


def _against_the_lock(folder: Path, landed: Lock) -> Iterator[SchemaProblem]:
    files = {f"{file.parent.name}/{file.stem}": file for file in sorted(folder.glob("*/*.avsc"))}
    for name, entry in landed.items():
        if name not in files:
            yield SchemaProblem(
                name, "has landed and is gone: what it wrote cannot be read", "put the file back (git checkout)"
            )
        elif entry_of(files[name]) != entry:
            yield SchemaProblem(
                name,
                "was edited after it landed: what it wrote cannot be read, or means something else",
                "put the file back (git checkout) and add a new version",
            )
    for name in files.keys() - landed.keys():
        yield SchemaProblem(name, "is not locked", "run `distrl schemas lock` once it is as it shall stay", new=True)


def _hint(reader: str, writer: str) -> str:
    newer = max(reader, writer, key=lambda name: int(name.rpartition("/v")[2]))
    return f"change {newer}: a field that comes or goes has a default; types, names and namespaces stay"
