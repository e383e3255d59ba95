"""Decks: what tasks of the listed suites are about, dealt out to splits, so that none is named in two of them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from distrl.tasks.entities import dealt, hands_of
from distrl.types import Split

ATTEMPTS: Final = 10_000


@dataclass(frozen=True)
class EntityPool:
    """hands: the cards of each split, as an instruction spells them."""

    name: str
    hands: Mapping[Split, tuple[str, ...]]

    @property
    def cards(self) -> tuple[str, ...]:
        return tuple(card for hand in self.hands.values() for card in hand)


def singles(name: str, cards: Sequence[str]) -> EntityPool:
    """Every card to one split, in the shares of entities.py, always alike."""
    return EntityPool(name, _deal(name, cards, 0))


def pairs(name: str, cards: Sequence[tuple[str, str]]) -> EntityPool:
    """The same of pairs of words, in the first deal that leaves training every word: what is held out is how they are
    put together. Raises ValueError where there is none.
    """
    spelt = [" ".join(card) for card in cards]
    for attempt in range(ATTEMPTS):
        hands = _deal(name, spelt, attempt)
        taught = {word for card in hands[Split.TRAIN] for word in card.split()}
        if all(word in taught for card in spelt for word in card.split()):
            return EntityPool(name, hands)
    raise ValueError(f"no deal of {name} leaves training every word")


def joined(name: str, *decks: EntityPool) -> EntityPool:
    """One deck of several that share no card, each card in the split that it was dealt to."""
    return EntityPool(name, {split: tuple(card for deck in decks for card in deck.hands[split]) for split in Split})


def of_home(kind: str) -> EntityPool:
    """Entities of the home suite, dealt as there: whoever learns both meets none that is held out."""
    return EntityPool(kind, {split: tuple(" ".join(pair) for pair in hand) for split, hand in dealt(kind).items()})


def _deal(name: str, cards: Sequence[str], attempt: int) -> dict[Split, tuple[str, ...]]:
    return hands_of(random.Random(f"deck {name} {attempt}").sample(list(cards), len(cards)))
