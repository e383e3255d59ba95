"""The built-in suites by name, and the interface of a suite."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from distrl.errors import ConfigError
from distrl.tasks import entities
from distrl.tasks.entities import SHARES, Pair
from distrl.tasks.family import TaskFamily
from distrl.tasks.suites.general import GENERAL
from distrl.tasks.suites.googleapps import GOOGLE_APPS
from distrl.tasks.suites.home import HomeSuite
from distrl.tasks.suites.install import INSTALLS
from distrl.tasks.suites.webshop import WEBSHOP
from distrl.types import Split, Task

EVALUATION_SEED: Final = 7_919
"""Seed of every evaluation task, in every run: success is only comparable on the same tasks."""


class Suite(Protocol):
    """name: as in feeder.suite, or the files of a list. families: in the order in which `task` alternates in
    training; a list has one entry, whatever the families of its tasks.
    """

    @property
    def name(self) -> str: ...
    @property
    def families(self) -> tuple[str, ...]: ...
    def task(self, index: int, seed: int, split: Split) -> Task:
        """Task number `index` of a split under a seed: always the same; in training, of a suite with several families,
        it is of families[index mod their number].
        """
        ...

    def said(self, split: Split) -> tuple[str, ...]:
        """The instructions of a split; for an endless one the first few thousand."""
        ...


class BuiltIn(Suite, Protocol):
    """A suite whose tasks a script can do and the phone's state can check.

    kinds: its families. typed: the distinct texts to type of its training tasks. texts: all instructions and texts
    to type of its tasks of any split.
    """

    @property
    def kinds(self) -> tuple[TaskFamily, ...]: ...
    @property
    def typed(self) -> tuple[str, ...]: ...
    @property
    def texts(self) -> tuple[str, ...]: ...
    def size(self, split: Split) -> int | None:
        """How many tasks a split has; None for endless ones."""
        ...


SUITES: Final[Mapping[str, BuiltIn]] = MappingProxyType(
    {suite.name: suite for suite in (HomeSuite(), GENERAL, WEBSHOP, INSTALLS, GOOGLE_APPS)}
)
_FAMILIES: Final = {(name, family.name): family for name, suite in SUITES.items() for family in suite.kinds}


def suites() -> Mapping[str, BuiltIn]:
    """Every suite by name."""
    return SUITES


def suite_named(name: str) -> BuiltIn:
    """The suite that feeder.suite names. Raises ConfigError if it is unknown."""
    if name not in SUITES:
        raise ConfigError("feeder.suite", f"no suite '{name}'", f"one of: {', '.join(sorted(SUITES))}")
    return SUITES[name]


def family_of(task: Task) -> TaskFamily | None:
    """A task's family of a built-in suite; None if it has none."""
    return _FAMILIES.get((task.suite, task.family))


def held_out_pairs() -> frozenset[Pair]:
    """Every pair of words that is an entity of some suite's validation or test tasks.

    Entities of one word (countries, cities) and of three (chores) are none: pre-training may show their words.
    """
    pools = [pool for suite in SUITES.values() for kind in suite.kinds for pool in kind.about.values()]
    held_out = {entity for pool in pools for split in SHARES for entity in pool.by_split[split]}
    split_up = [tuple(entity.lower().split()) for entity in held_out]
    return entities.held_out_pairs() | {(words[0], words[1]) for words in split_up if len(words) == 2}
