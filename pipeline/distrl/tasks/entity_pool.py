"""Entity pools: the objects of the listed suites' tasks, split so that no entity is in two splits."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from distrl.tasks.entities import assigned, split_shares
from distrl.types import Split

ATTEMPTS: Final = 10_000


@dataclass(frozen=True)
class EntityPool:
    """Entities of one kind by split, as instructions spell them."""

    name: str
    by_split: Mapping[Split, tuple[str, ...]]

    @property
    def entities(self) -> tuple[str, ...]:
        return tuple(entity for part in self.by_split.values() for entity in part)


def singles(name: str, entities: Sequence[str]) -> EntityPool:
    """Each entity in one split, in the shares of entities.py, always the same."""
    return EntityPool(name, _assign(name, entities, 0))


def pairs(name: str, entities: Sequence[tuple[str, str]]) -> EntityPool:
    """The same for pairs of words, in the first assignment whose training split has every word, so that only the
    combinations are held out. Raises ValueError if there is none.
    """
    spelt = [" ".join(entity) for entity in entities]
    for attempt in range(ATTEMPTS):
        by_split = _assign(name, spelt, attempt)
        taught = {word for entity in by_split[Split.TRAIN] for word in entity.split()}
        if all(word in taught for entity in spelt for word in entity.split()):
            return EntityPool(name, by_split)
    raise ValueError(f"no assignment of {name} leaves training every word")


def joined(name: str, *pools: EntityPool) -> EntityPool:
    """The union of disjoint pools; each entity stays in its split."""
    return EntityPool(
        name, {split: tuple(entity for pool in pools for entity in pool.by_split[split]) for split in Split}
    )


def of_home(kind: str) -> EntityPool:
    """Entities of the home suite with its splits, so that training on both suites meets no held-out entity."""
    return EntityPool(kind, {split: tuple(" ".join(pair) for pair in part) for split, part in assigned(kind).items()})


def _assign(name: str, entities: Sequence[str], attempt: int) -> dict[Split, tuple[str, ...]]:
    return split_shares(random.Random(f"deck {name} {attempt}").sample(list(entities), len(entities)))
