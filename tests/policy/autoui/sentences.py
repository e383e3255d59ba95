"""What an example of the pre-training says, read back from its prompt."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from distrl.policy.autoui.pretraining.examples import Example, Pair
from distrl.policy.autoui.tokenizer import WordTokenizer


def says(codec: WordTokenizer, example: Example) -> list[str]:
    """Every token of the prompt."""
    return [codec.tokens[i] for i in example.prompt]


def sentence(codec: WordTokenizer, example: Example) -> list[str]:
    """The words before the earlier actions."""
    words = says(codec, example)
    return words[: words.index("<prev>")]


def holds(words: Sequence[str], phrase: Sequence[str]) -> bool:
    return any(list(words[i : i + len(phrase)]) == list(phrase) for i in range(len(words)))


def names_forbidden(words: Sequence[str], forbidden: frozenset[Pair]) -> bool:
    return any(pair in forbidden for pair in itertools.pairwise(words))
