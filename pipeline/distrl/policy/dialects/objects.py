"""Actions written as one JSON object."""

from __future__ import annotations

import json
from typing import Any, Final, Never

from distrl.text import fields_once


def read_object(text: str, start: int) -> tuple[dict[str, Any], int]:
    """The object that begins at `start`, and where it ends.

    JSON, with line breaks in strings, which models write, and without NaN and Infinity. Raises ValueError or
    RecursionError for anything else, and for an object that names a field twice.
    """
    found, end = _DECODER.raw_decode(text, start)
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found, end


def _no_number(name: str) -> Never:
    raise ValueError(f"{name} is no number")


_DECODER: Final = json.JSONDecoder(object_pairs_hook=fields_once, parse_constant=_no_number, strict=False)
