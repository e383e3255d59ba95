"""Text as it is compared and tokenised: plain words."""

from __future__ import annotations

from typing import Final

_STRIPPED: Final = ".,;!?\"'()[]"


def plain_words(text: str) -> list[str]:
    """The words of `text` in lower case, without the punctuation around them."""
    return [word for part in text.lower().split() if (word := part.strip(_STRIPPED))]
