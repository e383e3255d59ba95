"""What a setting decides of a run, and when. Declared at the setting: `Annotated[int, Effect(When.START)]`.

The fingerprint, ablations, the run's recorded settings and the docs use it, and keep no lists of settings of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, get_args

from pydantic import BaseModel, model_validator

UNSET: Final = object()


class When(StrEnum):
    """When a setting counts."""

    START = "before the first update"
    WARMUP = "in the warm-up"
    ALWAYS = "in every update"
    LATER = "after the warm-up"


@dataclass(frozen=True, slots=True)
class Effect:
    """How a learning setting acts on the fold."""

    when: When
    windows: bool = False
    """Whether it decides which records an update folds."""
    fixed: str = ""
    """Why no ablation may change it, to complete "it …"; empty where one may."""
    learned: bool = True
    """Whether results depend on it. If not, it may change within a run, and is not in the fingerprint."""
    before: Any = UNSET
    """The value (JSON-able) with which the fold does what it did before the setting existed. With it the setting stays
    out of the fingerprint, so that runs that were begun before go on. It never changes, though the default may. UNSET:
    there is no such value, and those runs cannot go on."""


class Local:
    """Marks a setting of one process or machine: an address, a credential, a name, a place on disk. It is no part of
    the run, and never in the run's log.
    """


LOCAL = Local()


class Section(BaseModel):
    """Settings. Frozen, and strict about names: a misspelt setting is an error, not a default."""

    model_config = {"extra": "forbid", "frozen": True, "validate_default": True, "allow_inf_nan": False}

    effect: ClassVar[Effect | None] = None
    """The default for the section's settings; None where the fold does not read them."""
    local: ClassVar[bool] = False
    """Whether every setting of the section is LOCAL."""

    @model_validator(mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, given: Any) -> Any:
        """A number that is given as true or false becomes a word, which is refused. pydantic takes it for 1 or 0:
        `max_lag: no`, as for no limit, would be the strictest one."""
        if not isinstance(given, Mapping):
            return given
        wrong = {name: value for name, value in given.items() if isinstance(value, bool) and name in cls.model_fields}
        kinds = {name: cls.model_fields[name].annotation for name in wrong}
        numbers = {name for name, kind in kinds.items() if {*(get_args(kind) or (kind,))} & {int, float}}
        return {**given, **{name: "yes" if wrong[name] else "no" for name in numbers}} if numbers else given


def effect_of(section: Section, name: str) -> Effect | None:
    """The effect of a section's setting `name`."""
    found = type(section).model_fields[name].metadata
    return next((each for each in found if isinstance(each, Effect)), section.effect)


def effects(section: Section, above: str = "") -> Iterator[tuple[str, Effect]]:
    """The path of every setting below `section` that the fold reads, with its effect."""
    for name, value in section:
        path = f"{above}.{name}" if above else name
        if isinstance(value, Section):
            yield from effects(value, path)
        elif (found := effect_of(section, name)) is not None:
            yield path, found


def learned(section: Section) -> dict[str, Any]:
    """The settings of `section` that the fold reads, JSON-able; a section in it is left out where it has none."""
    values, found = section.model_dump(mode="json"), dict[str, Any]()
    for name, value in section:
        if isinstance(value, Section):
            if inner := learned(value):
                found[name] = inner
        elif (effect := effect_of(section, name)) is None or effect.learned:
            found[name] = values[name]
    return found


def shared(section: Section, above: str) -> Iterator[tuple[str, Any]]:
    """The path and the JSON-able value of every setting below `section` that belongs to the run; none is LOCAL."""
    if section.local:
        return
    values = section.model_dump(mode="json")
    for name, value in section:
        path = f"{above}.{name}"
        if isinstance(value, Section):
            yield from shared(value, path)
        elif not any(isinstance(each, Local) for each in type(section).model_fields[name].metadata):
            yield path, values[name]
