"""Splits text into plain words, for comparing and tokenising."""

from __future__ import annotations

from typing import Final

_STRIPPED: Final = ".,;!?\"'()[]"


def plain_words(text: str) -> list[str]:
    """The words of `text` in lower case, without the punctuation around them."""
    return [word for part in text.lower().split() if (word := part.strip(_STRIPPED))]
