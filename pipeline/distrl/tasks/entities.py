"""What tasks are about, dealt out to splits: no entity of one split is ever named in another."""

from __future__ import annotations

import random
from typing import Final

from distrl.phone import words
from distrl.types import Split

Pair = tuple[str, str]

SHARES: Final = {Split.TEST: 0.25, Split.VALIDATION: 0.15}
"""The rest is for training."""

ENTITIES: Final[dict[str, tuple[Pair, ...]]] = {
    "item": words.pairs(words.COLOURS, words.NOUNS),
    "switch": words.pairs(words.SWITCHES, words.SWITCH_KINDS),
    "contact": words.pairs(words.FIRST_NAMES, words.LAST_NAMES),
    "time": words.pairs(words.HOURS, words.HALVES),
}


def dealt(kind: str) -> dict[Split, tuple[Pair, ...]]:
    """The entities of one kind by split, always dealt alike; each split has some of every kind."""
    pack = list(ENTITIES[kind])
    random.Random(f"deal {kind}").shuffle(pack)
    hands: dict[Split, tuple[Pair, ...]] = {}
    for split, share in SHARES.items():
        size = max(2, round(share * len(ENTITIES[kind])))
        hands[split], pack = tuple(pack[:size]), pack[size:]
    return {Split.TRAIN: tuple(pack), **hands}


def held_out_pairs() -> frozenset[Pair]:
    """Every pair that training of any kind must never name: those of the validation and of the test split."""
    return frozenset(
        pair for kind in ENTITIES for split, hand in dealt(kind).items() if split is not Split.TRAIN for pair in hand
    )
