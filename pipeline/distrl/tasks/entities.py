"""What tasks are about, dealt out to splits: no entity of one split is ever named in another."""

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
def dealt(kind: str) -> dict[Split, tuple[Pair, ...]]:
    """The entities of one kind by split, always dealt alike: the first deal that leaves training every word."""
    return next(hands for hands in (_deal(kind, attempt) for attempt in count()) if _teaches_every_word(kind, hands))


def _deal(kind: str, attempt: int) -> dict[Split, tuple[Pair, ...]]:
    pack = list(ENTITIES[kind])
    random.Random(f"deal {kind} {attempt}").shuffle(pack)
    return hands_of(pack)


def hands_of(pack: Sequence[T]) -> dict[Split, tuple[T, ...]]:
    """A shuffled pack by split, each held-out one's share from the top, at least two cards."""
    hands: dict[Split, tuple[T, ...]] = {}
    dealt_out = 0
    for split, share in SHARES.items():
        size = max(2, round(share * len(pack)))
        hands[split] = tuple(pack[dealt_out : dealt_out + size])
        dealt_out += size
    return {Split.TRAIN: tuple(pack[dealt_out:]), **hands}


def _teaches_every_word(kind: str, hands: dict[Split, tuple[Pair, ...]]) -> bool:
    known = {word for pair in hands[Split.TRAIN] for word in pair}
    return all(word in known for pair in ENTITIES[kind] for word in pair)


def held_out_pairs() -> frozenset[Pair]:
    """Every pair that training of any kind must never name: those of the validation and of the test split."""
    return frozenset(
        pair for kind in ENTITIES for split, hand in dealt(kind).items() if split is not Split.TRAIN for pair in hand
    )
