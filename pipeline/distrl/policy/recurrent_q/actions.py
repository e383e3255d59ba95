"""The grid of actions that Q has a value of each: A numbers for what a tiny AutoUI can write.

    0 …            a tap on each cell, column by column
    then           AutoUI's actions of one token: four swipes, three keys, the end
    then           typed text: the words of the instruction from place p on, 1 to LONGEST of them, p by p

An action is recorded as AutoUI's ids of it; which number that is follows from the instruction. Text that is not a part
of the instruction has no number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from distrl.policy.autoui.tokenizer import END, SINGLES, UNKNOWN, WordTokenizer

Ids = tuple[int, ...]
Goal = Sequence[int]
"""The ids of an instruction's words."""

PLACES: Final = 16
"""Words of an instruction that a typed text may begin with. The longest of the built-in suites has 15."""


class ActionGrid:
    """Numbers of actions, for one vocabulary. Immutable."""

    def __init__(self, words: WordTokenizer) -> None:
        ids = words.grammar
        taps = [
            (ids["<tap>"], ids[f"x{x}"], ids[f"y{y}"], END) for x in range(words.columns) for y in range(words.rows)
        ]
        self._fixed: tuple[Ids, ...] = (*taps, *((ids[single], END) for single in SINGLES))
        self._numbers = {action: number for number, action in enumerate(self._fixed)}
        self._type = ids["<type>"]
        self._longest = words.action_length - 2
        """Words: "<type>" and the end take two ids."""
        self.count = len(self._fixed) + PLACES * self._longest
        """A."""

    def number(self, goal: Goal, action: Ids) -> int | None:
        """The number of the action with the ids `action`; None if it has none."""
        return self._numbers[action] if action in self._numbers else self._typed(goal).get(action)

    def written(self, goal: Goal, number: int) -> Ids:
        """The ids of a possible action."""
        if number < len(self._fixed):
            return self._fixed[number]
        return next(ids for ids, found in self._typed(goal).items() if found == number)

    def possible(self, goal: Goal) -> NDArray[np.bool_]:
        """(A,) which actions there are with this instruction. Of equal texts one is possible: two numbers of one
        action would have half of its probability each."""
        found = np.zeros(self.count, dtype=bool)
        found[: len(self._fixed)] = True
        found[list(self._typed(goal).values())] = True
        return found

    def _typed(self, goal: Goal) -> Mapping[Ids, int]:
        """What can be typed, and its number: that of the first place where it stands."""
        found: dict[Ids, int] = {}
        for place in range(min(len(goal), PLACES)):
            for length in range(1, min(self._longest, len(goal) - place) + 1):
                text = tuple(goal[place : place + length])
                if UNKNOWN in text:
                    break
                number = len(self._fixed) + place * self._longest + length - 1
                found.setdefault((self._type, *text, END), number)
        return found
