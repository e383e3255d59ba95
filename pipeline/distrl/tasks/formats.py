"""Parses a list of tasks into the fields of its rows, each with its line: JSONL, CSV, a JSON array, one text per line.

Pure, and bounded: any bytes give rows and problems, never an exception.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from distrl.tasks.row import Fields
from distrl.text import fields_once, printable

MAX_LINE: Final = 65_536
"""Bytes of a line of JSONL or text; characters of a CSV field."""
MAX_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class RowProblem:
    """An error and its position. line 0: the file as a whole."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        """For a terminal: text of the file and its name is escaped."""
        said = f"{self.file}:{self.line}: {self.what}" if self.line else f"{self.file}: {self.what}"
        return printable(said)


@dataclass(frozen=True, slots=True)
class Found:
    """A row as in the file, and its first line."""

    line: int
    fields: Fields


Read = Iterator[Found | RowProblem]


def rows_in(file: str, suffix: str, data: bytes) -> Read:
    """The rows of a file in the format of its suffix (a key of FORMATS), and the problems of the others."""
    for number, found in enumerate(FORMATS[suffix](file, data)):
        if number >= MAX_ROWS:
            yield RowProblem(file, 0, f"has more than {MAX_ROWS} rows")
            return
        yield found


def _jsonl(file: str, data: bytes) -> Read:
    for line, text in _lines(file, data):
        yield text if isinstance(text, RowProblem) else _object(file, line, text)


def _text(file: str, data: bytes) -> Read:
    """As DigiRL publishes AitW's instructions: one per line, and nothing else."""
    for line, text in _lines(file, data):
        yield text if isinstance(text, RowProblem) else Found(line, {"instruction": text})


def _csv(file: str, data: bytes) -> Read:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield RowProblem(file, data.count(b"\n", 0, error.start) + 1, "is no UTF-8")
        return
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    header: list[str] | None = None
    begin = 1
    try:
        for cells in lines:
            line, begin = begin, lines.line_num + 1
            if not any(cells):
                continue
            if header is None:
                header = [name.strip() for name in cells]
                if len(set(header)) != len(header):
                    yield RowProblem(file, line, "the header names a column twice")
                    return
            elif len(cells) != len(header):
                yield RowProblem(file, line, f"has {len(cells)} cells under a header of {len(header)}")
            elif any(len(cell) > MAX_LINE for cell in cells):
                yield RowProblem(file, line, f"has a cell of more than {MAX_LINE} characters")
            else:
                yield Found(line, dict(zip(header, cells, strict=True)))
    except csv.Error as error:
        yield RowProblem(file, begin, f"is no CSV from here on: {error}")


def _array(file: str, data: bytes) -> Read:
    """A JSON array of objects, as AndroidWorld's task_metadata.json. Read piece by piece, for the lines."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        yield RowProblem(file, data.count(b"\n", 0, error.start) + 1, "is no UTF-8")
        return
    at = _past_space(text, 0)
    line = 1 + text.count("\n", 0, at)
    if text[at : at + 1] != "[":
        yield RowProblem(file, line, "is no JSON array of objects")
        return
    expected = "["
    while text[at : at + 1] == expected:
        begin = _past_space(text, at + 1)
        line += text.count("\n", at, begin)
        if expected == "[" and text[begin : begin + 1] == "]":
            at = begin
            break
        try:
            value, end = _DECODER.raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            yield RowProblem(file, line, f"is no JSON from here on: {_reason(error)}")
            return
        yield _checked(file, line, value)
        at, expected = _past_space(text, end), ","
        line += text.count("\n", begin, at)
    if text[at : at + 1] != "]" or text[at + 1 :].strip(_JSON_SPACE):
        yield RowProblem(file, line, "the JSON array does not end where it should")


FORMATS: Final[Mapping[str, Callable[[str, bytes], Read]]] = {
    ".jsonl": _jsonl,
    ".csv": _csv,
    ".json": _array,
    ".txt": _text,
}


def _lines(file: str, data: bytes) -> Iterator[tuple[int, str | RowProblem]]:
    """The lines that are not blank, each decoded on its own, so that a broken one does not affect the others."""
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        if len(line) > MAX_LINE:
            yield number, RowProblem(file, number, f"has more than {MAX_LINE} bytes")
            continue
        if b"\r" in line.removesuffix(b"\r"):
            yield number, RowProblem(file, number, "has a carriage return in it; end lines by LF or CRLF")
            continue
        try:
            yield number, line.decode()
        except UnicodeDecodeError:
            yield number, RowProblem(file, number, "is no UTF-8")


def _object(file: str, line: int, text: str) -> Found | RowProblem:
    try:
        return _checked(file, line, _DECODER.decode(text))
    except (ValueError, RecursionError) as error:
        return RowProblem(file, line, f"is no JSON: {_reason(error)}")


def _checked(file: str, line: int, value: Any) -> Found | RowProblem:
    return Found(line, value) if isinstance(value, dict) else RowProblem(file, line, "is no JSON object")


def _reason(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)[:200]


def _past_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _JSON_SPACE:
        at += 1
    return at


_JSON_SPACE: Final = " \t\r\n"
_DECODER: Final = json.JSONDecoder(object_pairs_hook=fields_once)
