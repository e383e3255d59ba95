"""Where settings come from: a file, then DISTRL_* variables, then `--set path=value`.

Later sources win. DISTRL_KAFKA__BOOTSTRAP sets `kafka.bootstrap`. An unknown key or an impossible value is refused
before anything starts, with its path and what is allowed.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr, ValidationError

from distrl.config.algorithm_plugins import installed
from distrl.config.algorithms import ALGORITHMS
from distrl.config.names import ENV_PREFIX, field_at, kinds_at, sections_of
from distrl.config.refusals import UnsoundHereError, explain, may_be_sound
from distrl.config.tree import Config, path_of
from distrl.errors import ConfigError

UNREADABLE = "fix that line; a value that begins with one of ! & * % @ ` belongs into quotes"


def load(
    file: Path | None = None,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    base: Mapping[str, Any] | None = None,
    only: Collection[str] = (),
) -> Config:
    """The configuration from the tree `base`, then `file` (YAML), then `environ` (DISTRL_*), then `sets`
    ("path.to=value"); the later wins. Another algorithm.type than the base's takes none of the base's `algorithm`.

    only: the sections, and the settings as section.name, that are taken of what is given; all if empty. Raises
    ConfigError, naming the setting, what is wrong with it and what is allowed; UnsoundHereError if it may be valid with
    another base.
    """
    tree: dict[str, Any] = {} if file is None else _without_empty(_read(file))
    origins = dict.fromkeys(_paths(tree), str(file))
    for name, value in sorted((os.environ if environ is None else environ).items()):
        if name.startswith(ENV_PREFIX):
            path = path_of(name.removeprefix(ENV_PREFIX).lower().split("__"))
            _put(tree, path, value, where=name)
            origins[".".join(path)] = name
    for item in sets:
        named, equals, value = item.partition("=")
        if not equals:
            # Not the text itself, which may hold a secret.
            raise ConfigError("--set", "one has no '='", "write it as --set path.to.setting=value")
        _put(tree, path := path_of(named.strip().split(".")), value, where=f"--set {named}")
        origins.pop(".".join(path), None)
    if only:
        tree = _taken(tree, only)
    base = base or {}
    try:
        return Config.model_validate(_over(base, tree))
    except ValidationError as error:
        found = explain(error, origins)
        if may_be_sound(error) or _is_sound_for_another_algorithm(tree, base):
            found = UnsoundHereError(found.where, found.what, found.hint)
        raise found from None


def sources(file: Path | None, sets: Sequence[str] = (), environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """What `load` takes settings from, in words: the file's name, the variables, the paths of `sets`. No values."""
    names = sorted(os.environ if environ is None else environ)
    return (
        *([] if file is None else [f"file {file.name}"]),
        *(name for name in names if name.startswith(ENV_PREFIX)),
        *(f"--set {item.partition('=')[0].strip()}" for item in sets),
    )


def with_run(config: Config, run: str) -> Config:
    """`config` for another run. Raises ConfigError for an invalid name."""
    try:
        Config.model_validate({"run": run})
    except ValidationError as error:
        raise explain(error) from None
    return config.model_copy(update={"run": run})


def _paths(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The paths of all settings and sections in `tree`."""
    for name, value in tree.items():
        yield f"{above}{name}"
        if isinstance(value, Mapping):
            yield from _paths(value, f"{above}{name}.")


def _taken(tree: Mapping[str, Any], only: Collection[str]) -> dict[str, Any]:
    """The part of `tree` that `only` names. Unknown sections stay in it, so that they are refused."""
    taken = dict[str, Any]()
    for name, value in tree.items():
        if name in only or name not in Config.model_fields:
            taken[name] = value
        elif isinstance(value, Mapping):
            below = {each: value[each] for each in value if f"{name}.{each}" in only}
            taken |= {name: below} if below else {}
    return taken


def _is_sound_for_another_algorithm(tree: Mapping[str, Any], base: Mapping[str, Any]) -> bool:
    """Whether `tree`, which names no algorithm, may be valid with another algorithm than the base's."""
    given = tree.get("algorithm")
    if not isinstance(given, Mapping) or "type" in given:
        return False
    for kind in (*ALGORITHMS, *installed()):
        try:
            Config.model_validate(_over({**base, "algorithm": {"type": kind}}, tree))
        except ConfigError:  # a package that is spoilt
            continue
        except ValidationError as error:
            if not may_be_sound(error):
                continue
        return True
    return False


def _over(base: Mapping[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the values of `tree` over it."""
    merged = copy.deepcopy(dict(base))
    for name, value in tree.items():
        below = merged.get(name)
        if (
            isinstance(value, Mapping)
            and isinstance(below, Mapping)
            and value.get("type", below.get("type")) == below.get("type")
        ):
            merged[name] = _over(below, value)
        else:
            merged[name] = copy.deepcopy(value)
    return merged


class _TwiceError(yaml.MarkedYAMLError):
    """A key that a mapping has twice."""


class _Loader(yaml.SafeLoader):
    """Refuses a mapping with the same key twice; YAML's own loader would silently drop the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise _TwiceError(problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(file: Path) -> dict[str, Any]:
    try:
        tree = _parsed(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read ({error.strerror})", "name a readable YAML file") from None
    except UnicodeError:
        raise ConfigError(str(file), "is no text in UTF-8", "save it in that encoding") from None
    except _TwiceError as error:
        raise ConfigError(str(file), f"has a name twice{_place(error)}", "keep one of the two") from None
    except yaml.YAMLError as error:
        raise ConfigError(str(file), f"is no YAML{_place(error)}", UNREADABLE) from None
    except RecursionError:
        raise ConfigError(str(file), "is nested too deeply", UNREADABLE) from None
    except ValueError as error:  # of what looks like a date and is none, or holds itself
        raise ConfigError(str(file), f"has an impossible value: {error}", UNREADABLE) from None
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(str(file), "holds no mapping of settings", "see `distrl config show` for the shape")
    return tree


def _parsed(text: str) -> Any:
    """Raises YAMLError; RecursionError where it is nested too deeply; ValueError for an impossible value, and for one
    that holds itself by an alias: whatever walks through it would not end."""
    tree = yaml.load(text, _Loader)  # noqa: S506 - it is a SafeLoader
    json.dumps(tree, skipkeys=True, default=str)
    return tree


def _without_empty(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> dict[str, Any]:
    """`tree` without the sections whose lines are all commented out, which YAML reads as null."""
    found = {}
    for name, value in tree.items():
        field = field_at((*above, name))
        if value is not None or field is None or not sections_of(field.annotation):
            found[name] = _without_empty(value, (*above, name)) if isinstance(value, Mapping) else value
    return found


def _place(error: yaml.YAMLError) -> str:
    """The place of an error. Not the line's text nor YAML's message: both quote what stands there, which may be a
    secret."""
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"


def _put(tree: dict[str, Any], path: list[str], value: str, where: str) -> None:
    node = tree
    for name in path[:-1]:
        if node.get(name) is None:
            node[name] = {}
        node = node[name]
        if not isinstance(node, dict):
            raise ConfigError(where, f"'{name}' is a setting, not a section", "see `distrl config show`")
    node[path[-1]] = _value(path, value, where)


def _value(path: Sequence[str], value: str, where: str) -> Any:
    """The value of a variable or a flag. Text and paths are not parsed as YAML: one may be a number, or hold ' #'."""
    kinds = kinds_at(path)
    if kinds == {SecretStr} or (kinds in ({str}, {Path}) and value not in ("", "null") and value[:1] not in "'\""):
        return value
    try:
        return _parsed(value)
    except _TwiceError as error:
        raise ConfigError(where, f"has a name twice{_place(error)}", "keep one of the two") from None
    except (yaml.YAMLError, ValueError, RecursionError):  # as of what looks like a date and is none
        return value
