"""Suites of finite lists, as the paper has them: so many tasks to train on, so many held out, always the same ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any, Final

from distrl.phone.state import chance
from distrl.tasks.family import Family, Params
from distrl.types import Split, Task

TRIES: Final = 400
"""Draws for one more task that a list has not got yet. Words that give fewer tasks than are wanted are our mistake."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One task of a list, not yet on a phone."""

    family: str
    instruction: str
    params: Params
    setup: str


@dataclass(frozen=True)
class ListedSuite:
    """kinds: its families, each with as many tasks to train on as any other. counts: tasks of each family in a split,
    none of those that a split does not name.

    Training goes through each family's list in rounds, each in an order of its own, and families take turns, so that a
    curriculum can weigh them. A held-out split keeps its order and begins again after its end, on other phones.
    """

    name: str
    max_steps: int
    kinds: tuple[Family, ...]
    counts: Mapping[Split, Mapping[str, int]]
    _lists: dict[Split, dict[str, tuple[Entry, ...]]] = field(default_factory=dict, init=False, repr=False)

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(family.name for family in self.kinds)

    @cached_property
    def typed(self) -> tuple[str, ...]:
        by_name = {family.name: family.types for family in self.kinds}
        texts = (entry.params[name] for entry in self.entries(Split.TRAIN) for name in by_name[entry.family])
        return tuple(dict.fromkeys(texts))

    def entries(self, split: Split) -> tuple[Entry, ...]:
        """The whole list of a split, families in turn."""
        rows = zip_longest(*self._by_family(split).values())
        return tuple(entry for row in rows for entry in row if entry is not None)

    def task(self, index: int, seed: int, split: Split) -> Task:
        entry = self._of_training(index, seed) if split is Split.TRAIN else self._held_out(index, split)
        return Task(
            task_id=f"{self.name}-{split.value}-{seed}-{index:06d}",
            suite=self.name,
            family=entry.family,
            split=split,
            instruction=entry.instruction,
            max_steps=self.max_steps,
            phone_seed=chance(self.name, split.value, seed, index).randrange(2**31),
            params=entry.params,
            setup=entry.setup,
        )

    def _of_training(self, index: int, seed: int) -> Entry:
        family = self.families[index % len(self.kinds)]
        listed = self._by_family(Split.TRAIN)[family]
        turn, place = divmod(index // len(self.kinds), len(listed))
        return chance(self.name, family, seed, turn).sample(listed, len(listed))[place]

    def _held_out(self, index: int, split: Split) -> Entry:
        entries = self.entries(split)
        return entries[index % len(entries)]

    def _by_family(self, split: Split) -> dict[str, tuple[Entry, ...]]:
        if split not in self._lists:
            counts = self.counts[split]
            self._lists[split] = {
                family.name: self._drawn(family, split, counts[family.name])
                for family in self.kinds
                if family.name in counts
            }
        return self._lists[split]

    def _drawn(self, family: Family, split: Split, count: int) -> tuple[Entry, ...]:
        """The first `count` different tasks of a family that chance gives: no two say the same."""
        found: dict[str, Entry] = {}
        for number in range(TRIES * count):
            if len(found) == count:
                return tuple(found.values())
            rng = chance(self.name, split.value, family.name, number)
            params, setup = family.draw(rng, split)
            instruction = rng.choice(family.phrases).format(**params)
            found.setdefault(instruction, Entry(family.name, instruction, params, _canonical(setup)))
        raise ValueError(f"{self.name}: only {len(found)} different {split.value} tasks of {family.name}")


def _canonical(setup: Mapping[str, Any]) -> str:
    return json.dumps(setup, sort_keys=True)
