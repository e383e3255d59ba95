"""Converts records to and from the plain dicts that are encoded as Avro. The fields are taken from the dataclasses.

Each way is the fastest of those measured (`bench/wire.py`), for a trajectory of 12 steps:

    to a dict      an expression made from the fields  9.9 µs    msgspec.to_builtins 21.3 µs    by hand 11.2 µs
    from a dict    msgspec.convert                    16.3 µs                                   by hand 58.5 µs

`msgspec.to_builtins` would also refuse values that fastavro encodes correctly (NumPy's float64, mappings that are not
dicts), and accept values that are wrong (a dict in place of a record, a UUID in place of text).
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from distrl.types import Record

R = TypeVar("R", bound=Record)
Datum = dict[str, Any]

NAMES: Final[Mapping[type, str]] = {kind: kind.__name__.lower() for kind in typing.get_args(Record)}
"""Each kind of record -> the name of the folder of its schemas."""


def to_datum(record: Record) -> Datum:
    """`record` as a dict for fastavro. Maps are sorted by their keys, so that equal records give equal bytes.

    Checks nothing: values of a wrong type are refused by fastavro, or fail here with some Python error.
    """
    return _TO_DATUM[type(record)](record)


def to_record(datum: Mapping[str, Any], kind: type[R]) -> R:
    """The record in `datum`, which was read with the newest schema of its kind.

    Raises msgspec.ValidationError, which names the field, for a value that its field cannot have. Fields that `kind`
    does not have are dropped.
    """
    return msgspec.convert(datum, kind)


def _expression(kind: Any, value: str, depth: int = 0) -> str:
    """A Python expression that converts `value`, an expression of type `kind`, to its part of a datum."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = [
            f"{each.name!r}: {_expression(hints[each.name], f'{value}.{each.name}', depth)}"
            for each in dataclasses.fields(kind)
        ]
        return f"{{{', '.join(fields)}}}"
    if origin is types.UnionType:
        (some,) = (part for part in parts if part is not types.NoneType)
        made = _expression(some, value, depth)
        if typing.get_origin(some) is tuple:
            made = f"list({made})"  # fastavro takes a tuple in a union for a name and its value
        return value if made == value else f"None if {value} is None else {made}"
    if origin is tuple:
        item = f"item{depth}"
        made = _expression(parts[0], item, depth + 1)
        return value if made == item else f"[{made} for {item} in {value}]"
    return f"dict(sorted({value}.items()))" if origin is Mapping else value


def _compiled(kind: type[Record]) -> Callable[[Any], Datum]:
    """The function that converts a record of `kind` to its datum, generated from the fields, like a dataclass's
    `__init__`."""
    made: Callable[[Any], Datum] = eval(f"lambda record: {_expression(kind, 'record')}", {})  # noqa: S307
    return made


_TO_DATUM: Final = {kind: _compiled(kind) for kind in NAMES}
