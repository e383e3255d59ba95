"""Every version of a schema can be read as every other one (FULL_TRANSITIVE), so that any log stays readable."""

from __future__ import annotations

import json
from copy import deepcopy
from itertools import permutations
from pathlib import Path
from typing import Any

import avro.schema
import pytest
from avro.compatibility import (
    ReaderWriterCompatibilityChecker,
    SchemaCompatibilityResult,
    SchemaCompatibilityType,
)
from distrl.cli.main import app
from distrl.errors import WireError
from distrl.wire.evolution import misfits, resolve
from distrl.wire.schema_check import check
from distrl.wire.schemas import Schema, schema_folder
from fastavro.schema import parse_schema
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner


def reference(reader: Any, writer: Any) -> SchemaCompatibilityResult:
    """What the checker of the Avro project's own Python package says; it does not compare namespaces."""
    parsed = [avro.schema.parse(json.dumps(schema)) for schema in (reader, writer)]
    return ReaderWriterCompatibilityChecker().get_compatibility(*parsed)


def reference_says_fits(reader: Any, writer: Any) -> bool:
    return reference(reader, writer).compatibility is SchemaCompatibilityType.compatible


def fits(reader: Any, writer: Any) -> bool:
    return resolve(parse_schema(deepcopy(reader)), parse_schema(deepcopy(writer))) == []


def thing(*fields: dict[str, Any], namespace: str = "distrl") -> dict[str, Any]:
    return {"type": "record", "name": "Thing", "namespace": namespace, "fields": list(fields)}


def enum(*symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": "Colour", "symbols": list(symbols), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def schemas(*written: dict[str, Any]) -> list[Schema]:
    return [Schema("thing", n, dict(parse_schema(deepcopy(each))), b"") for n, each in enumerate(written, start=1)]  # type: ignore[call-overload]


A = field("a", "long")


@pytest.mark.parametrize(
    ("old", "new", "who"),
    [
        (thing(A), thing(A, field("b", "long", default=0)), []),
        (thing(A), thing(field("a", "long", default=1)), []),
        (thing(A), thing(A, field("b", "long")), ["v2 cannot v1: b: is not written there"]),
        (thing(A), thing(), ["v1 cannot v2: a: is not written there"]),
        (
            thing(A),
            thing(field("a", "string")),
            ["v1 cannot v2: a: string cannot be read as long", "v2 cannot v1: a: long cannot be read as string"],
        ),
        (thing(A), thing(field("a", "double")), ["v1 cannot v2: a: double cannot be read as long"]),
        (thing(A), thing(field("a", ["null", "long"])), ["v1 cannot v2: a: null cannot be read as long"]),
        (
            thing(field("p", {"type": "map", "values": "long"})),
            thing(field("p", {"type": "map", "values": "int"})),
            ["v2 cannot v1: p{}: long cannot be read as int"],
        ),
        (
            thing(field("s", {"type": "array", "items": {"type": "record", "name": "Step", "fields": [A]}})),
            thing(field("s", {"type": "array", "items": {"type": "record", "name": "Step", "fields": []}})),
            ["v1 cannot v2: s[].a: is not written there"],
        ),
        (
            thing(field("c", enum("red"))),
            thing(field("c", enum("red", "blue"))),
            ["v1 cannot v2: c: distrl.Colour has no default for the symbols blue"],
        ),
        (thing(field("c", enum("red", default="red"))), thing(field("c", enum("red", "blue", default="red"))), []),
    ],
    ids=lambda value: "",
)
def test_it_says_which_version_cannot_read_which_in_which_field(old: Any, new: Any, who: list[str]) -> None:
    found = [
        str(each).replace("thing/", "").replace("read what ", "").replace(" wrote", "")
        for each in misfits(schemas(old, new))
    ]
    assert len(found) == len(who)
    assert all(said.startswith(start) for said, start in zip(sorted(found), sorted(who), strict=True)), found
    for reader, writer in permutations((old, new)):
        assert fits(reader, writer) is reference_says_fits(reader, writer)


def test_a_moved_namespace_is_seen_where_the_reference_sees_none() -> None:
    old, new = thing(A), thing(A, namespace="elsewhere")
    assert reference_says_fits(new, old)
    assert [each.why for each in misfits(schemas(old, new))] == [
        "elsewhere.Thing is renamed to distrl.Thing: names and namespaces stay",
        "distrl.Thing is renamed to elsewhere.Thing: names and namespaces stay",
    ]


def test_the_reference_does_not_say_which_field_or_why() -> None:
    """Why this checker is ours: most of our fields are unions, and a record may break in two places at once."""
    optional = thing(field("a", ["null", "long"]))
    assert reference(thing(A), optional).locations == {"/"}
    assert [each.field for each in misfits(schemas(thing(A), optional))] == ["a"]
    one, other = thing(field("a", "string"), field("b", "long")), thing(field("a", "long"), field("b", "string"))
    found = reference(one, other)
    assert (len(found.locations), len(found.messages)) == (2, 2)
    assert not any("/" in message for message in found.messages), "neither reason names its field"
    assert [(each.field, each.why) for each in misfits(schemas(one, other))][:2] == [
        ("a", "long cannot be read as string"),
        ("b", "string cannot be read as long"),
    ]


def test_the_check_is_transitive() -> None:
    """Each step fits the one before; the third cannot be read by the first."""
    versions = schemas(thing(A), thing(field("a", "long", default=0)), thing())
    assert misfits(versions[:2]) == []
    assert misfits(versions[1:]) == []
    assert [(each.reader, each.writer, each.field) for each in misfits(versions)] == [("thing/v1", "thing/v3", "a")]


def test_a_recursive_type_ends() -> None:
    tree = thing(A, field("children", {"type": "array", "items": "Thing"}))
    grown = thing(A, field("b", "long"), field("children", {"type": "array", "items": "Thing"}))
    assert fits(tree, tree)
    assert not fits(grown, tree)


primitives = st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
enums = st.builds(
    lambda symbols, default: enum(*symbols, **({"default": symbols[0]} if default else {})),
    st.lists(st.sampled_from(["red", "blue", "green"]), min_size=1, unique=True), st.booleans(),
)  # fmt: skip
simple = st.one_of(primitives, st.sets(primitives, min_size=1).map(sorted))
kinds = st.one_of(
    simple, enums, simple.map(lambda items: {"type": "array", "items": items}),
    simple.map(lambda values: {"type": "map", "values": values}),
    st.sampled_from([4, 8]).map(lambda size: {"type": "fixed", "name": "Hash", "size": size}),
)  # fmt: skip
things = st.builds(lambda one, two: thing(field("x", one), field("y", two)), kinds, simple)


@settings(max_examples=400, deadline=None)
@given(things, things)
def test_any_pair_is_judged_as_the_reference_judges_it(reader: Any, writer: Any) -> None:
    assert fits(reader, writer) is reference_says_fits(reader, writer)


# The gate


def test_what_we_ship_passes_the_gate() -> None:
    """Broken by an edit of a landed schema: add v<N+1>.avsc instead, then `distrl schemas lock`."""
    assert check(schema_folder()).problems == ()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "thing").mkdir()
    write(tmp_path, 1, thing(A, field("c", enum("red", default="red"))))
    assert run("lock", tmp_path).exit_code == 0
    return tmp_path


def write(folder: Path, version: int, schema: Any) -> None:
    (folder / f"thing/v{version}.avsc").write_text(json.dumps(schema))


def run(command: str, folder: Path) -> Any:
    return CliRunner().invoke(app, ["schemas", command, "--directory", str(folder)])


C = field("c", enum("red", default="red"))


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (thing(A, C, field("b", "long")), "thing/v2: cannot read what thing/v1 wrote: b: is not written there"),
        (thing(C), "thing/v1: cannot read what thing/v2 wrote: a: is not written there"),
        (thing(A, C, namespace="elsewhere"), "does not define distrl.Thing"),
        (thing(A, C) | {"name": "Other"}, "does not define distrl.Thing"),
        (thing(A, field("c", enum("red"))), "thing/v2: enum distrl.Colour has no default"),
        (thing(A, C, field("n", {"type": "array", "items": "null"}, default=[])), "distrl.Thing.n holds items of no"),
        ("{", "is no Avro schema"),
        (thing(A, C, field("b", "long", default=0)), "thing/v2: is not locked"),
    ],
)
def test_the_command_says_what_breaks_whom_and_ends_with_1(folder: Path, schema: Any, told: str) -> None:
    write(folder, 2, schema)
    found = run("check", folder)
    assert isinstance(found.exception, WireError)
    assert told in found.output
    assert "hint: " in found.output


LEVEL = {"type": "record", "name": "Level", "fields": [field("l", "long")]}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("Colour", "blue"), (["null", "Colour"], "blue"), ({"type": "array", "items": "Colour"}, ["red", "blue"]),
        ({"type": "map", "values": "long"}, {"a": "x"}), (LEVEL, {}), (LEVEL, {"l": "x"}), ("int", 2**31),
        ({"type": "array", "items": {"type": "map", "values": "boolean"}}, [{"a": 1}]),
    ],
)  # fmt: skip
def test_a_default_that_its_type_cannot_hold_is_reported(folder: Path, kind: Any, default: Any) -> None:
    """Each is taken by the parser, and would be what an older record is read with."""
    write(folder, 2, thing(A, C, field("d", kind, default=default)))
    found = run("check", folder)
    assert f"thing/v2: the default of distrl.Thing.d is {default!r}, which its type cannot hold" in found.output
    assert isinstance(found.exception, WireError)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("Colour", "red"), (["null", "Colour"], None), ({"type": "array", "items": "Colour"}, ["red"]), ("double", 1),
        ({"type": "map", "values": "float"}, {"a": 1.5}), (LEVEL, {"l": -(2**63)}), ("int", 2**31 - 1),
        ("boolean", False), ({"type": "fixed", "name": "Hash", "size": 2}, "ab"),
    ],
)  # fmt: skip
def test_a_default_that_its_type_holds_may_land(folder: Path, kind: Any, default: Any) -> None:
    write(folder, 2, thing(A, C, field("d", kind, default=default)))
    assert run("lock", folder).exit_code == 0


def test_a_landed_file_that_is_edited_or_gone_is_reported_and_never_locked_anew(folder: Path) -> None:
    write(folder, 1, thing(A, C) | {"doc": "a comment changes no byte on the wire, and yet is an edit"})
    for command in ("check", "lock"):
        assert "thing/v1: was edited after it landed" in run(command, folder).output
    (folder / "thing/v1.avsc").unlink()
    for command in ("check", "lock"):
        found = run(command, folder)
        assert "thing/v1: has landed and is gone" in found.output
        assert found.exit_code == 1


def test_a_change_that_fits_lands_and_stays(folder: Path) -> None:
    write(folder, 2, thing(A, C, field("b", "long", default=0)))
    assert "not locked" in run("ls", folder).output
    assert "thing/v2 has landed" in run("lock", folder).output
    found = run("check", folder)
    assert found.exit_code == 0
    assert [line.count("landed") for line in found.output.splitlines() if "thing" in line] == [1, 1]
    write(folder, 2, thing(A, C))
    assert run("check", folder).exit_code == 1


def test_what_does_not_fit_is_not_locked(folder: Path) -> None:
    before = (folder / "lock.json").read_text()
    write(folder, 2, thing(A, C, field("b", "long")))
    assert run("lock", folder).exit_code == 1
    assert (folder / "lock.json").read_text() == before


@pytest.mark.parametrize("text", ["{", "[]", '{"thing/v1": 3}'])
def test_a_lock_that_is_none_is_an_error_that_names_it(folder: Path, text: str) -> None:
    (folder / "lock.json").write_text(text)
    with pytest.raises(WireError, match=r"lock\.json"):
        check(folder)
