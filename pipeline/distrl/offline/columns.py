"""The columns of an exported Parquet file: a row per step of trajectories and evaluations, a row per other record.

Every row begins with its record's position in the log. A trajectory without steps has no row. Other records have their
fields as columns, nested ones as structs, lists and maps.

Columns are the fields of the records, in their order. The row of a step has the fields of the step and of its
trajectory (and evaluation) side by side, nested ones flattened as in `screenshot_key`; the tables below list the
exceptions. Where two fields of a row have the same name, one needs a line in NAMED; `pytest
tests/offline/test_columns.py` says so.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, Final

import pyarrow as pa

from distrl.offline.replay import Item
from distrl.types import Evaluation, Record, Step, Trajectory
from distrl.wire.convert import to_datum

Row = Mapping[str, Any]
Read = Callable[[Any], Any]

TIME: Final = pa.timestamp("ms", tz="UTC")
"""Type of integers named `at` or `…_at`, in the row of a step."""

CALENDAR: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds of the years 1 to 9999."""

PLACE: Final = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIME,
    "key": pa.binary(),
}

PLAIN: Final = frozenset({"Evaluation.trajectory", "Trajectory.task", "Step.action"})
"""Nested records whose columns do not get the field's name as a prefix."""

NAMED: Final = {
    "Evaluation.version": "evaluated_version",
    "Evaluation.version_sha256": "evaluated_sha256",
    "Action.kind": "action",
    "Action.text": "typed",
}
"""Fields whose column has another name: their own would clash, or say nothing."""

COUNTED: Final = frozenset({"Trajectory.steps"})
"""Fields of which a row has only the number of items."""

LEFT_OUT: Final = frozenset({"setup", "final_screenshot_size"})
"""Columns left out of the row of a step: JSON for the phone's reset, and a size that the store knows."""

MOVED: Final = {
    "evaluated_version": "evaluation_id",
    "evaluated_sha256": "evaluated_version",
    "params": "instruction",
    "max_steps": "phone_seed",
    "steps": "final_restless",
    "final_screenshot_key": "steps",
    "final_screenshot_sha256": "final_screenshot_key",
}
"""Column -> the column that it is moved behind; moved in this order."""

ZERO_IS_NULL: Final = frozenset({"fed_at"})
"""Times of which 0 means none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """A column of the row of a step."""

    name: str
    type: pa.DataType
    read: Read
    """Gets its value from the record, or from the step."""


def schema_of(kind: type[Record] | None) -> pa.Schema:
    """The columns of records of `kind`; None: of records without a schema."""
    if kind is None:
        headers = pa.list_(pa.struct({"name": pa.string(), "value": pa.binary()}))
        return pa.schema(PLACE | {"headers": headers, "value": pa.binary()})
    if kind in (Trajectory, Evaluation):
        attempt, step = ([(each.name, each.type) for each in _COLUMNS[part]] for part in (kind, Step))
        return pa.schema([*PLACE.items(), *attempt, ("step", pa.int32()), *step])
    return pa.schema(PLACE | _fields(kind))


def rows_of(item: Item) -> Iterable[Row]:
    """The rows of one decodable record, with the columns of `schema_of`."""
    raw, record = item.raw, item.record
    at = raw.position
    place = {
        "topic": at.topic,
        "partition": at.partition,
        "offset": at.offset,
        "timestamp": None if raw.timestamp < 0 else raw.timestamp,
        "key": raw.key,
    }
    if record is None:
        return [place | {"headers": [{"name": n, "value": v} for n, v in raw.headers], "value": raw.value}]
    if not isinstance(record, Trajectory | Evaluation):
        return [place | to_datum(record)]
    steps = (record.trajectory if isinstance(record, Evaluation) else record).steps
    same = place | _cells(record)
    return [same | {"step": index} | _cells(step) for index, step in enumerate(steps)]


def _cells(record: Trajectory | Evaluation | Step) -> dict[str, Any]:
    return {column.name: column.read(record) for column in _COLUMNS[type(record)]}


def columns_of(kind: type) -> tuple[Column, ...]:
    """The columns that the row of a step has from `kind`: an evaluation, a trajectory or the step."""
    flat = list(_flat(kind, "", lambda record: record))
    columns, order = {column.name: column for column in flat}, [column.name for column in flat]
    for name, before in MOVED.items():
        if name in columns:
            order.remove(name)
            order.insert(order.index(before) + 1, name)
    return tuple(columns[name] for name in order)


def _flat(kind: Any, prefix: str, read: Read) -> Iterator[Column]:
    """A column for each field of `kind` and of the records nested in it. read: gets the `kind`, or None."""
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        place, inner = f"{kind.__name__}.{field.name}", _some(hints[field.name])
        name, value = NAMED.get(place, prefix + field.name), _then(read, field.name)
        if dataclasses.is_dataclass(inner):
            yield from _flat(inner, "" if place in PLAIN else f"{name}_", value)
        elif place in COUNTED:
            yield Column(name, pa.int32(), _counted(value))
        elif typing.get_origin(inner) is tuple and dataclasses.is_dataclass(typing.get_args(inner)[0]):
            yield Column(name, _type(inner), _structs(value))
        elif name not in LEFT_OUT:
            is_time = inner is int and f"_{name}".endswith("_at")
            yield Column(name, TIME, _dated(value)) if is_time else Column(name, _type(inner), value)


def _then(read: Read, name: str) -> Read:
    """Reads field `name` of what `read` returns; None where that is None."""
    field = attrgetter(name)
    if name in ZERO_IS_NULL:
        return lambda record: field(read(record)) or None
    return lambda record: None if (found := read(record)) is None else field(found)


def _dated(read: Read) -> Read:
    """None for a time that no calendar has: a record may say anything, and Python could not read the row."""
    return lambda record: found if (found := read(record)) is not None and found in CALENDAR else None


def _counted(read: Read) -> Read:
    return lambda record: len(read(record))


def _structs(read: Read) -> Read:
    return lambda record: [dataclasses.asdict(each) for each in read(record)]


def _fields(kind: type) -> dict[str, pa.DataType]:
    """The columns of a record whose fields are written as they are."""
    hints = typing.get_type_hints(kind)
    return {field.name: _type(hints[field.name]) for field in dataclasses.fields(kind)}


def _some(kind: Any) -> Any:
    """`kind` without None, where it is optional."""
    if not isinstance(kind, types.UnionType):
        return kind
    return next(each for each in typing.get_args(kind) if each is not types.NoneType)


def _type(kind: Any) -> pa.DataType:
    """The Arrow type of a field of `types.py`."""
    scalars = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}
    kind = _some(kind)
    if kind in scalars:
        return scalars[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return pa.list_(_type(arguments[0]))
    if origin is not None:  # the only other generic of types.py is a mapping with text as keys
        return pa.map_(pa.string(), _type(arguments[1]))
    return pa.string() if issubclass(kind, Enum) else pa.struct(_fields(kind))


_COLUMNS: Final[Mapping[type, tuple[Column, ...]]] = {kind: columns_of(kind) for kind in (Evaluation, Trajectory, Step)}
