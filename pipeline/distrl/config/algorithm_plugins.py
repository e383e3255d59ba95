"""The settings of algorithms that other packages bring: found by an entry point as soon as `algorithm.type` names one.

    [project.entry-points."distrl.algorithms"]
    "package.name" = "package.settings:NameSettings"    a subclass of PluginSettings

Nothing of another package is imported before that, as its settings import distrl.config themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint
from typing import Annotated, Any, Final, get_args

from pydantic import Field, GetCoreSchemaHandler, TypeAdapter, ValidatorFunctionWrapHandler
from pydantic_core import CoreSchema, core_schema

from distrl import plugins
from distrl.config.algorithms import AlgorithmSettings, ArideSettings, BufferSettings, OwnSettings, PluginSettings
from distrl.config.effects import Effect, When
from distrl.errors import ConfigError

TYPE: Final = "algorithm.type"
NAME: Final = re.compile(r"[a-z][a-z0-9_]*\.[a-z0-9_]+")
"""The algorithm.type of another package. DistRL's own have no dot."""


def installed() -> list[str]:
    """Every algorithm.type of the packages that are installed here. They are not imported."""
    return [name for name in plugins.names(plugins.ALGORITHMS) if NAME.fullmatch(name)]


def settings_of(kind: object) -> type[PluginSettings] | None:
    """The settings of an algorithm.type that another package brings; None for DistRL's own, and where no package here
    has it. Raises ConfigError where two have it, and where it cannot be loaded or is no type of settings."""
    entry = _entry(kind)
    if entry is None:
        return None
    found = plugins.loaded(entry, ConfigError)
    if (flaw := _flaw(found, entry.name)) is not None:
        raise ConfigError(
            f"entry point {entry.name}",
            f"{entry.value} {flaw}",
            "correct its package: distrl.config.PluginSettings says what it must be",
        )
    brought: type[PluginSettings] = found
    return brought


def package_of(algorithm: AlgorithmSettings) -> str:
    """The package, by its name at import, that brings the algorithm. Raises ConfigError where two have its name."""
    if not isinstance(algorithm, PluginSettings):
        return plugins.OURS
    entry = _entry(algorithm.type)
    return type(algorithm).__module__.partition(".")[0] if entry is None else plugins.package_of(entry)


class ByType:
    """For pydantic: `algorithm` as the settings of its type, which another package may bring. Written as what it is."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            _validated, handler.generate_schema(OwnSettings), serialization=core_schema.simple_ser_schema("any")
        )


def _validated(value: Any, own: ValidatorFunctionWrapHandler) -> AlgorithmSettings:
    """Raises ValidationError, and ConfigError as `settings_of`."""
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    brought = settings_of(kind)
    found: AlgorithmSettings = own(value) if brought is None else _reader(brought).validate_python(value)
    return found


@cache
def _reader(brought: type[PluginSettings]) -> TypeAdapter[Any]:
    """Reads `brought` beside one of DistRL's own types: only so an error has the type in its place, as with them."""
    kinds: Any = Annotated[ArideSettings | brought, Field(discriminator="type")]
    return TypeAdapter(kinds)


def _entry(kind: object) -> EntryPoint | None:
    if not isinstance(kind, str) or not NAME.fullmatch(kind):
        return None
    return plugins.entry(plugins.ALGORITHMS, kind, ConfigError)


def _flaw(found: object, name: str) -> str | None:
    """Why `found` cannot be the settings of the algorithm of this name, to complete "it …"; None where it can."""
    if not isinstance(found, type) or not issubclass(found, PluginSettings):
        return "is no subclass of distrl.config.PluginSettings"
    kind = found.model_fields["type"]
    if (kind.default, get_args(kind.annotation)) != (name, (name,)):
        return f'lacks `type: Literal["{name}"] = "{name}"`'
    if lacking := [each for each, field in found.model_fields.items() if field.is_required()]:
        return f"has no default of {', '.join(lacking)}"
    if not isinstance(found.model_fields["replay"].default, BufferSettings):
        return "has a `replay` whose default is no distrl.config.BufferSettings"
    effect = next((each for each in kind.metadata if isinstance(each, Effect)), found.effect)
    if effect is None or effect.when is not When.START:
        return "has a `type` that does not count from the start: write Annotated[Literal[...], Effect(When.START)]"
    if not isinstance(getattr(found, "code", None), str):
        return 'does not say where its code is: `code: ClassVar[str] = "package.module:REGISTERED"`'
    return None
