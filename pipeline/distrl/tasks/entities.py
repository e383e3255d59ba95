"""The entities of the home suite's tasks by split: no entity of one split is ever named in another."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from itertools import count
from typing import Final, TypeVar

from simphone import words

from distrl.types import Split

Pair = tuple[str, str]
T = TypeVar("T")

SHARES: Final = {Split.TEST: 0.25, Split.VALIDATION: 0.15}
"""The rest is for training."""

ENTITIES: Final[dict[str, tuple[Pair, ...]]] = {
    "item": words.pairs(words.COLOURS, words.NOUNS),
    "switch": words.pairs(words.SWITCHES, words.SWITCH_KINDS),
    "contact": words.pairs(words.FIRST_NAMES, words.LAST_NAMES),
    "time": words.pairs(words.HOURS, words.HALVES),
}


@cache
def assigned(kind: str) -> dict[Split, tuple[Pair, ...]]:
    """The entities of one kind by split, always the same: the first assignment whose training split has every word."""
    return next(found for found in (_assign(kind, attempt) for attempt in count()) if _teaches_every_word(kind, found))


def _assign(kind: str, attempt: int) -> dict[Split, tuple[Pair, ...]]:
    shuffled = list(ENTITIES[kind])
    random.Random(f"deal {kind} {attempt}").shuffle(shuffled)
    return split_shares(shuffled)


def split_shares(shuffled: Sequence[T]) -> dict[Split, tuple[T, ...]]:
    """Shuffled entities by split: each held-out split takes its share, at least two, from the beginning."""
    held_out: dict[Split, tuple[T, ...]] = {}
    taken = 0
    for split, share in SHARES.items():
        size = max(2, round(share * len(shuffled)))
        held_out[split] = tuple(shuffled[taken : taken + size])
        taken += size
    return {Split.TRAIN: tuple(shuffled[taken:]), **held_out}


def _teaches_every_word(kind: str, by_split: dict[Split, tuple[Pair, ...]]) -> bool:
    known = {word for pair in by_split[Split.TRAIN] for word in pair}
    return all(word in known for pair in ENTITIES[kind] for word in pair)


def held_out_pairs() -> frozenset[Pair]:
    """Every pair that training must never name: those of the validation and of the test split, of all kinds."""
    return frozenset(
        pair for kind in ENTITIES for split, part in assigned(kind).items() if split is not Split.TRAIN for pair in part
    )
