"""What pydantic refuses, as errors for the people who wrote the settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from distrl.config.algorithm_plugins import NAME, installed
from distrl.config.allowed import allowed, written
from distrl.config.names import ENV_PREFIX, field_at, kinds_at, sections_of, siblings, untagged
from distrl.errors import ConfigError
from distrl.librdkafka import PropertyError
from distrl.plugins import ALGORITHMS, names

UNKNOWN = "extra_forbidden"
"""pydantic's type of a problem: a name that no setting has."""
SCHEME = re.compile(r"\W*\w+://")
QUERY = re.compile(r"""(["'])((?:\\.|(?!\1)[^?#])*)([?#])(?:\\.|(?!\1).)+\1""", re.DOTALL)
"""A quoted address with a query or a fragment, which may hold a key."""
BARE_QUERY = re.compile(r"([/:][^?#]*[?#])(?!…).*", re.DOTALL)
"""The same for an address without quotes."""


class UnsoundHereError(ConfigError):
    """Settings that are invalid together with the base settings that they were checked with, and may be valid with
    others, such as those of a run: they contradict other settings, or belong to another algorithm."""


def may_be_sound(error: ValidationError) -> bool:
    """Whether the only errors are contradictions between settings, which may not arise with other base settings."""
    return all(problem["type"] == "value_error" and _is_section(problem["loc"]) for problem in error.errors())


def explain(error: ValidationError, origins: Mapping[str, str] = MappingProxyType({})) -> ConfigError:
    """One error for all wrong settings, each with its hint. origins: path of a setting -> the file or the variable that
    it comes from."""
    found = [_of_origin(problem, origins) for problem in error.errors()]
    what = found[0].what
    for before, after in pairwise(found):
        what += f"\n  hint: {before.hint}\n{after.where}: {after.what}"
    return ConfigError(found[0].where, what, found[-1].hint)


def _of_origin(problem: ErrorDetails, origins: Mapping[str, str]) -> ConfigError:
    """The refusal with where the setting comes from, if that is known."""
    found = _refusal(problem)
    name = origins.get(found.where)
    if name is None:
        return found
    if not name.startswith(ENV_PREFIX):
        return ConfigError(found.where, found.what, f"{found.hint}; it stands in {name}")
    hint = found.hint
    if problem["type"] == UNKNOWN:
        hint += "; in a variable `__` stands between section and name, as in DISTRL_KAFKA__BOOTSTRAP"
    return ConfigError(f"{found.where} ({name})", found.what, hint)


def _refusal(problem: ErrorDetails) -> ConfigError:
    loc, kind = untagged(problem["loc"])
    path = ".".join(str(part) for part in loc) or "config"
    fault = problem.get("ctx", {}).get("error")
    if isinstance(fault, PropertyError):
        return ConfigError(f"{path}.{fault.name}" if fault.name else path, str(fault), fault.fix)
    if problem["type"] == "union_tag_invalid":
        wrong, known = problem["ctx"]["tag"], [problem["ctx"]["expected_tags"].replace("'", ""), *installed()]
        hint = f"one of: {', '.join(known)}"
        if NAME.fullmatch(wrong):
            hint += (
                "; one of another package is found where that package is installed, by its entry point "
                f"{written(wrong)} in the group {ALGORITHMS}"
            )
        elif wrong in names(ALGORITHMS):
            hint += f"; a package here has an entry point {written(wrong)}, which must be called PACKAGE.NAME"
        return ConfigError(f"{path}.type", f"no such type (it is {written(wrong)})", hint)
    if problem["type"] == UNKNOWN:
        of = f" of {loc[0]}.type {kind}" if kind else ""
        return ConfigError(path, f"no such setting{of}", f"one of: {', '.join(siblings(problem['loc']))}")
    return ConfigError(path, f"{_wrong(problem)}{_shown(problem['loc'], problem['input'])}", _allowed(problem["loc"]))


def _wrong(problem: ErrorDetails) -> str:
    """What is wrong, without pydantic's terms."""
    if problem["type"] == "value_error":
        return _without_secrets(str(problem["ctx"]["error"]))
    return {
        "tuple_type": "Input should be a list",
        "path_type": "Input should be a path",
        "model_type": "Input should be a section, with settings of its own",
        "model_attributes_type": "Input should be a section, with settings of its own",
    }.get(problem["type"], problem["msg"])


def _shown(loc: Sequence[int | str], value: Any) -> str:
    """The wrong value, unless it is a secret or stands for a section that may hold one."""
    path = [str(part) for part in loc]
    found = field_at(path)
    stands_for_section = (
        found is not None and bool(sections_of(found.annotation)) and not isinstance(value, int | float)
    )
    hidden = SecretStr in kinds_at(path) or isinstance(value, Mapping | BaseModel) or stands_for_section
    return "" if hidden else f" (it is {_without_secrets(written(value))})"


def _without_secrets(text: str) -> str:
    """`text` without those parts of an address that may be secret: what stands before its last @ (a user and a
    password) and its query.
    """
    before, at, after = text.rpartition("@")
    if at and ":" in before:
        scheme = SCHEME.match(before)
        in_query = re.search("[?#]", before) is not None  # or in a password: then what follows the @ may be of a key
        text = f"{scheme.group() if scheme else ''}…{'' if in_query else f'@{after}'}"
    return BARE_QUERY.sub(r"\1…", QUERY.sub(r"\1\2\3…\1", text))


def _is_section(loc: Sequence[int | str]) -> bool:
    """Whether there is a section at `loc`, or the whole tree."""
    found = field_at(untagged(loc)[0])
    return not loc or (found is not None and bool(sections_of(found.annotation)))


def _allowed(loc: Sequence[int | str]) -> str:
    setting = (
        loc[:-1] if loc and isinstance(loc[-1], int) else loc
    )  # the hint for an entry of a list is that of the list
    found = field_at(setting) if setting else None
    if found is None or sections_of(found.annotation):
        return "see `distrl config show`"
    return allowed(found)
