"""Settings by their paths: the section where one stands, the types of its values, whether it is a secret.

A path is the names from the top of the tree; pydantic's may hold the type of a section that is one of several, and the
place of an entry in a list.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from distrl.config.algorithm_plugins import settings_of
from distrl.config.algorithms import PluginSettings
from distrl.config.effects import Section
from distrl.config.tree import CLIENT, Config, path_of
from distrl.librdkafka import is_secret

ENV_PREFIX = "DISTRL_"
"""Prefix of environment variables that hold settings."""


def kinds_at(path: Sequence[str]) -> set[Any]:
    """The types of the setting at `path` but None; empty where there is no such setting."""
    if tuple(path[:2]) == CLIENT and len(path) == 3:
        return {SecretStr} if is_secret(path[2]) else {str}
    found = field_at(path)
    if found is None:
        return set()
    return {*(get_args(found.annotation) or (found.annotation,))} - {type(None)}


def may_hold_secret(name: str) -> bool:
    """Whether the setting of this dotted name is a secret, or a section or a mapping with one somewhere below."""
    path = path_of(name.strip().split("."))
    found = field_at(path)
    if tuple(path) == CLIENT or SecretStr in kinds_at(path):
        return True
    return found is not None and any(_has_secret(model) for model in sections_of(found.annotation))


def field_at(loc: Sequence[int | str]) -> FieldInfo | None:
    """The setting or section at `loc`; None where there is none."""
    models = _sections(loc[:-1]) if loc else []
    return next((model.model_fields[str(loc[-1])] for model in models if str(loc[-1]) in model.model_fields), None)


def untagged(loc: Sequence[int | str]) -> tuple[list[int | str], str]:
    """`loc` as a person writes it, and the type that pydantic inserts where a section may be one of several."""
    for place in range(1, len(loc)):
        if _tagged(_sections(loc[:place]), str(loc[place])):
            return [*loc[:place], *loc[place + 1 :]], str(loc[place])
    return list(loc), ""


def sections_of(annotation: Any) -> list[type[BaseModel]]:
    """The sections that an annotation names."""
    found = get_args(annotation) or (annotation,)
    return [each for each in found if isinstance(each, type) and issubclass(each, Section)]


def siblings(loc: Sequence[int | str]) -> list[str]:
    """The names that stand where `loc` ends."""
    return sorted({name for model in _sections(loc[:-1]) for name in model.model_fields})


def _sections(loc: Sequence[int | str]) -> Sequence[type[BaseModel]]:
    """The section at `loc`, or all that are possible there; where `loc` leads further, the last section on the way."""
    models: Sequence[type[BaseModel]] = [Config]
    for part in map(str, loc):
        tagged = _tagged(models, part)
        below = [
            each for m in models if part in m.model_fields for each in sections_of(m.model_fields[part].annotation)
        ]
        if not tagged and not below:
            break
        models = tagged or below
    return models


def _tagged(models: Sequence[type[BaseModel]], part: str) -> Sequence[type[BaseModel]]:
    """Those of several sections whose type is `part`; none where it is no type of theirs."""
    if PluginSettings in models and (brought := settings_of(part)) is not None:
        return [brought]
    return [model for model in models if len(models) > 1 and _tag(model) == part]


def _has_secret(section: type[BaseModel]) -> bool:
    fields = [field.annotation for field in section.model_fields.values()]
    return any(SecretStr in get_args(each) or any(map(_has_secret, sections_of(each))) for each in fields)


def _tag(model: type[BaseModel]) -> str:
    return str(model.model_fields["type"].default) if "type" in model.model_fields else ""
