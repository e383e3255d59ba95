"""What a person may not ask for where training or exploration learns from it: tasks that a policy is measured on.

The rule is exact, and reads an instruction as a policy does, without case and punctuation. With a list (feeder.tasks)
an instruction is held out that one of its validation or test rows says. Without, one that a validation or test task of
a finite built-in suite says, or in which two words in a row are a pair that some suite holds out, as every held-out
task of the endless `home` names one. The same wish in other words is not recognised.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from distrl.config import FeederSettings
from distrl.errors import ConfigError
from distrl.tasks.entities import Pair
from distrl.tasks.list_report import HELD_OUT, folded
from distrl.tasks.lists import suite_of
from distrl.tasks.suite import held_out_pairs, suites
from distrl.text import plain_words


@dataclass(frozen=True, slots=True)
class HeldOut:
    """instructions: as `_read` gives them."""

    instructions: frozenset[tuple[str, ...]]
    pairs: frozenset[Pair]

    def refuse(self, instruction: str, where: str) -> None:
        """Raises ConfigError, which begins with `where`, for an instruction that is held out."""
        why = self.why(instruction)
        if why is not None:
            raise ConfigError(
                where,
                f"{instruction!r:.100} {why}: a policy is measured on it",
                "ask for something else, or about another",
            )

    def why(self, instruction: str) -> str | None:
        """Why an instruction is held out; None for one that is not."""
        words = _read(instruction)
        pair = next((pair for pair in pairwise(words) if pair in self.pairs), None)
        if pair is not None:
            return f"names '{' '.join(pair)}', which is held out"
        return "is a validation or test task" if words in self.instructions else None


def held_out(feeder: FeederSettings) -> HeldOut:
    """What the tasks of `feeder` hold out. Raises ConfigError for a list that cannot be read."""
    asked = [suite_of(feeder)] if feeder.tasks else [each for each in suites().values() if each.size(HELD_OUT[0])]
    said = frozenset(_read(instruction) for suite in asked for split in HELD_OUT for instruction in suite.said(split))
    return HeldOut(said, frozenset() if feeder.tasks else held_out_pairs())


def _read(instruction: str) -> tuple[str, ...]:
    return tuple(plain_words(folded(instruction)))
