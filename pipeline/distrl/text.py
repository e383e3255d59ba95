"""Plain words of a text, for comparing and tokenising; text that is safe to show; JSON that is unambiguous."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_STRIPPED: Final = ".,;:!?\"'()[]"


def printable(text: str) -> str:
    """`text` with everything escaped that a terminal would act on, or that turns the direction of a line."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def encodable(text: str) -> str:
    """`text` with "?" for each half of a surrogate pair, which JSON can spell and no record can hold."""
    return text.encode(errors="replace").decode()


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class; for people."""
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as ranges: 0-2, 5."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def plain_words(text: str) -> list[str]:
    """The words of `text` in lower case, without the punctuation around them."""
    return [word for part in text.lower().split() if (word := part.strip(_STRIPPED))]


def fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object for `json`'s object_pairs_hook. Raises ValueError for a name that occurs twice, as it is ambiguous."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a field twice")
    return found
