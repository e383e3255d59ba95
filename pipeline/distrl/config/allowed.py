"""Describes the values of a setting for people who write the file, without Python's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

WORDS: Mapping[Any, str] = {int: "a whole number", float: "a number", bool: "yes or no", Path: "a path"}
"""Python type -> words for people. Everything else is text, secrets too."""


def allowed(field: FieldInfo) -> str:
    """The values of `field` and its default: "a number above 0; the default is 10.0"."""
    kind, bounds, pattern = _kind(field.annotation), _bounds(field), _rule(field, "pattern")
    about = ""
    if field.description and kind.startswith(("text", "a path", "a list", "a mapping")):
        about = f": {field.description}"  # for the other kinds, words and bounds are enough
    elif pattern is not None:
        about = f" that matches {pattern}"
    return f"{kind}{bounds}{about}; the default is {written(field.default)}"


def written(value: Any) -> str:
    """`value` as written in a file of settings."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return f"[{', '.join(written(each) for each in value)}]"
    return repr(value) if isinstance(value, str) else str(value)


def _kind(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _kind(arguments[0])
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin is tuple:
        return f"a list, each entry {_kind(arguments[0])}"
    if origin is dict:
        return "a mapping"
    if origin in (Union, UnionType):
        return f"{_kind(next(each for each in arguments if each is not type(None)))} or null"
    return WORDS.get(annotation, "text")


def _bounds(field: FieldInfo) -> str:
    low, high = _rule(field, "ge"), _rule(field, "le")
    parts: Sequence[tuple[str, Any]] = (
        (" above", _rule(field, "gt")),
        (" and below" if _rule(field, "gt") is not None else " below", _rule(field, "lt")),
        (" from", None if low is None or high is None else f"{low} to {high}"),
        (" of at least", low if high is None else None),
        (" of at most", high if low is None else None),
        (" in steps of", _rule(field, "multiple_of")),
    )
    return "".join(f"{words} {value}" for words, value in parts if value is not None)


def _rule(field: FieldInfo, name: str) -> Any:
    return next((getattr(rule, name) for rule in field.metadata if getattr(rule, name, None) is not None), None)
