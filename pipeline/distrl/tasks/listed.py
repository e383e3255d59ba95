"""Suites with finite lists of tasks, as in the paper: fixed numbers of training and held-out tasks, always the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import Final

from simphone.state import chance

from distrl.tasks.family import Params, TaskFamily
from distrl.types import Split, Task

TRIES: Final = 400
"""Draws for one more new task of a list. A family whose words give too few tasks is a bug of the suite."""


@dataclass(frozen=True, slots=True)
class ListedTask:
    """One task of a list, not yet on a phone."""

    family: str
    instruction: str
    params: Params
    setup: str


@dataclass(frozen=True)
class ListedSuite:
    """kinds: its families. counts: tasks per family by split; 0 for families that a split does not list; training has
    all. No two tasks of a suite have the same instruction.

    In training families take turns, so that a curriculum can weigh them, and each goes through its list in rounds, each
    in a new order. A held-out split keeps its order and starts again after its end, on other phones.
    """

    name: str
    max_steps: int
    kinds: tuple[TaskFamily, ...]
    counts: Mapping[Split, Mapping[str, int]]

    @property
    def families(self) -> tuple[str, ...]:
        return tuple(family.name for family in self.kinds)

    @cached_property
    def typed(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self._typed(Split.TRAIN)))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(text for split in Split for text in (*self.said(split), *self._typed(split)))

    def size(self, split: Split) -> int:
        return len(self.entries(split))

    def said(self, split: Split) -> tuple[str, ...]:
        return tuple(entry.instruction for entry in self.entries(split))

    def _typed(self, split: Split) -> tuple[str, ...]:
        types = {family.name: family.types for family in self.kinds}
        return tuple(entry.params[name] for entry in self.entries(split) for name in types[entry.family])

    def entries(self, split: Split) -> tuple[ListedTask, ...]:
        """The whole list of a split, families in turn."""
        rows = zip_longest(*self._lists[split].values())
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

    def _of_training(self, index: int, seed: int) -> ListedTask:
        family = self.families[index % len(self.kinds)]
        listed = self._lists[Split.TRAIN][family]
        turn, place = divmod(index // len(self.kinds), len(listed))
        return chance(self.name, family, seed, turn).sample(listed, len(listed))[place]

    def _held_out(self, index: int, split: Split) -> ListedTask:
        entries = self.entries(split)
        return entries[index % len(entries)]

    @cached_property
    def _lists(self) -> Mapping[Split, Mapping[str, tuple[ListedTask, ...]]]:
        """Held-out tasks are drawn first, so that training has none of their instructions."""
        said: set[str] = set()
        return {
            split: {
                family.name: self._drawn(family, split, self.counts[split][family.name], said)
                for family in self.kinds
                if family.name in self.counts[split]
            }
            for split in (Split.TEST, Split.VALIDATION, Split.TRAIN)
        }

    def _drawn(self, family: TaskFamily, split: Split, count: int, said: set[str]) -> tuple[ListedTask, ...]:
        """The first `count` random tasks of a family whose instruction is not in `said` yet."""
        found: list[ListedTask] = []
        for number in range(TRIES * count):
            if len(found) == count:
                return tuple(found)
            rng = chance(self.name, split.value, family.name, number)
            params, setup = family.draw(rng, split)
            instruction = rng.choice(family.phrases).format(**params)
            if instruction not in said:
                said.add(instruction)
                found.append(ListedTask(family.name, instruction, params, json.dumps(setup, sort_keys=True)))
        raise ValueError(f"{self.name}: only {len(found)} different {split.value} tasks of {family.name}")
