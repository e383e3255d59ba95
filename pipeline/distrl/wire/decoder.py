"""Decodes Avro bytes to plain dicts, by a function generated for each schema, like a dataclass's `__init__`.

It accepts only the canonical form: one block per array or map, numbers in as few bytes as possible, valid indexes and
booleans, each key of a map once. So a record determines its bytes. fastavro silently accepts other forms (an index of
-1 counts from the end, a boolean of 2 is true, numbers of any length wrap). Refusing them by encoding each record again
would take longer than all of this decoding (docs/adr/0015).

Bytes are untrusted: each item of an array takes at least a byte, so work and memory are bounded by the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

from distrl.errors import WireError

Decoder = Callable[[bytes, int], tuple[dict[str, Any], int]]
"""(payload, where its body begins) -> (datum as fastavro would read it, where the body ends).

The returned end is beyond the payload's if a text or bytes value at its end is truncated. Raises IndexError or
struct.error if another value is truncated, and ValueError for a form that is not canonical.
"""


def decoder(schema: Mapping[str, Any]) -> Decoder:
    """The decoder of a record's `schema`, as parsed by fastavro. Raises WireError for an unsupported type."""
    code = _Code()
    name = code.function(schema)
    exec("\n".join(code.functions), code.names)  # noqa: S102
    made: Decoder = code.names[name]
    return made


class _Code:
    """Generates one Python function per record type, which reads the values from `data`; `i` is the next byte's index.

    functions: their source, line by line. names: the globals that they use.
    """

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.names: dict[str, Any] = {"number": _number, "refuse": _refuse}
        self._enums: dict[str, str] = {}
        self._records: dict[str, str] = {}
        self._lines: list[str] = []
        self._variables = 0

    def function(self, schema: Mapping[str, Any]) -> str:
        """Add the function that reads a record of `schema`; returns its name."""
        name = self._records[schema["name"]] = f"read_{len(self._records)}"
        outer, self._lines = self._lines, [f"def {name}(data, i):"]
        self._line(1, f"return {self._fields(schema['fields'])}, i")
        self.functions += self._lines
        self._lines = outer
        return name

    def _fields(self, fields: Sequence[Mapping[str, Any]]) -> str:
        """The dict display of a record's values. Adjacent doubles are read by one call."""
        parts = []
        for alike, several in groupby(fields, key=lambda field: field["type"] == "double"):
            group = list(several)
            values = self._doubles(len(group), 1) if alike else [self._value(each["type"], 1) for each in group]
            parts += [f"{each['name']!r}: {value}" for each, value in zip(group, values, strict=True)]
        return f"{{{', '.join(parts)}}}"

    def _value(self, schema: Any, depth: int) -> str:
        """Add what reads a value of `schema`; returns the name of the variable that holds it."""
        match schema:
            case ["null", some]:
                return self._optional(some, depth)
            case "boolean" | {"type": "boolean"}:
                return self._known(self._constant(_Known({0: False, 1: True})), depth)
            case "long" | {"type": "long"}:
                return self._long(depth)
            case "double" | {"type": "double"}:
                return self._doubles(1, depth)[0]
            case "string" | {"type": "string"}:
                return self._string(depth)
            case "bytes" | {"type": "bytes"}:
                return self._bytes(depth)
            case {"type": "array", "items": items}:
                return self._array(items, depth)
            case {"type": "map", "values": values}:
                return self._map(values, depth)
            case {"type": "enum", "name": name, "symbols": symbols}:
                self._enums[name] = self._constant(_symbols(symbols))
                return self._known(self._enums[name], depth)
            case {"type": "record"}:
                return self._call(self.function(schema), depth)
            case str() if schema in self._records:
                return self._call(self._records[schema], depth)
            case str() if schema in self._enums:
                return self._known(self._enums[schema], depth)
        raise _unknown(schema)

    def _line(self, depth: int, text: str) -> None:
        self._lines.append("    " * depth + text)

    def _variable(self) -> str:
        self._variables += 1
        return f"v{self._variables}"

    def _constant(self, value: Any) -> str:
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def _call(self, function: str, depth: int) -> str:
        made = self._variable()
        self._line(depth, f"{made}, i = {function}(data, i)")
        return made

    def _known(self, values: str, depth: int) -> str:
        """Read one byte, and look it up in the constant `values`."""
        made = self._variable()
        self._line(depth, f"{made} = {values}[data[i]]; i += 1")
        return made

    def _long(self, depth: int) -> str:
        """Numbers of one and two bytes are read inline, as a call would take longer than all the rest."""
        made = self._variable()
        self._line(depth, f"{made} = data[i]; i += 1")
        self._line(depth, f"if {made} < 128: {made} = {made} >> 1 ^ -({made} & 1)")
        self._line(
            depth, f"elif 0 < data[i] < 128: {made} = {made} - 128 + (data[i] << 7) >> 1 ^ -({made} & 1); i += 1"
        )
        self._line(depth, f"else: {made}, i = number(data, i - 1)")
        return made

    def _count(self, depth: int) -> str:
        """Read a length, which must not be negative."""
        made = self._variable()
        self._line(depth, f"{made} = data[i]; i += 1")
        self._line(depth, f"if {made} & 1: refuse('a length is negative')")
        self._line(depth, f"if {made} < 128: {made} >>= 1")
        self._line(depth, f"elif 0 < data[i] < 128: {made} = {made} - 128 + (data[i] << 7) >> 1; i += 1")
        self._line(depth, f"else: {made}, i = number(data, i - 1)")
        return made

    def _doubles(self, several: int, depth: int) -> list[str]:
        made = [self._variable() for _ in range(several)]
        unpack = self._constant(struct.Struct(f"<{several}d").unpack_from)
        self._line(depth, f"{', '.join(made)}, = {unpack}(data, i); i += {8 * several}")
        return made

    def _string(self, depth: int) -> str:
        made, length = self._variable(), self._count(depth)
        self._line(depth, f"{length} += i; {made} = str(data[i:{length}], 'utf-8'); i = {length}")
        return made

    def _bytes(self, depth: int) -> str:
        made, length = self._variable(), self._count(depth)
        self._line(depth, f"{length} += i; {made} = data[i:{length}]; i = {length}")
        return made

    def _optional(self, some: Any, depth: int) -> str:
        made = self._variable()
        self._line(depth, f"{made} = data[i]; i += 1")
        self._line(depth, f"if {made} == 2:")
        self._line(depth + 1, f"{made} = {self._value(some, depth + 1)}")
        self._line(depth, f"elif {made}: refuse('there is no such type in the union')")
        self._line(depth, f"else: {made} = None")
        return made

    def _array(self, items: Any, depth: int) -> str:
        made, several = self._variable(), self._count(depth)
        self._line(depth, f"{made} = []")
        self._line(depth, f"if {several}:")
        self._line(depth + 1, f"for _ in range({several}):")
        self._line(depth + 2, f"{made}.append({self._value(items, depth + 2)})")
        self._end_of_block(depth + 1)
        return made

    def _map(self, values: Any, depth: int) -> str:
        made, several = self._variable(), self._count(depth)
        self._line(depth, f"{made} = {{}}")
        self._line(depth, f"if {several}:")
        self._line(depth + 1, f"for _ in range({several}):")
        key = self._string(depth + 2)
        self._line(depth + 2, f"if {key} in {made}: refuse('a key is there twice')")
        self._line(depth + 2, f"{made}[{key}] = {self._value(values, depth + 2)}")
        self._end_of_block(depth + 1)
        return made

    def _end_of_block(self, depth: int) -> None:
        self._line(depth, "if data[i]: refuse('there is a second block')")
        self._line(depth, "i += 1")


def _number(data: bytes, at: int) -> tuple[int, int]:
    """The zig-zag number at `at`, and where it ends. Raises ValueError if it has more bytes than it needs or more than
    64 bits."""
    read, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        read |= (byte & 127) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 63:
            _refuse("a number has more than 64 bits")
    if not byte and shift:
        _refuse("a number takes more bytes than it needs")
    if read >> 64:
        _refuse("a number has more than 64 bits")
    return read >> 1 ^ -(read & 1), at


def _refuse(why: str) -> None:
    raise ValueError(why)


class _Known(dict[int, Any]):
    """Encoded byte -> value. Raises ValueError for any other byte."""

    def __missing__(self, byte: int) -> None:
        _refuse(f"byte {byte} stands for no value there")


def _symbols(symbols: list[str]) -> _Known:
    """An enum's symbols by their encoded indexes, which are zig-zag numbers of one byte."""
    if len(symbols) > 64:
        raise _unknown(f"of an enum of {len(symbols)} symbols")
    return _Known({2 * index: symbol for index, symbol in enumerate(symbols)})


def _unknown(schema: Any) -> WireError:
    return WireError(
        f"schema {schema}", "is of a type that no record had so far", "add it to distrl/wire/decoder.py (_Code)"
    )
