"""The special tokens of a tokenizer, and texts without them: an instruction must not end its own turn or the prompt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def special_tokens(tokenizer: Any, named: Iterable[str] = ()) -> tuple[str, ...]:
    """Those of a tokenizer of transformers and those `named`, longest first.

    Of added tokens, `<tool_call>` and lines of spaces for instance are none: they are text. An empty one is none
    either: `without` would find it in a text without end.
    """
    added = {str(each) for each in tokenizer.added_tokens_decoder.values() if each.special}
    return tuple(sorted({*added, *named} - {""}, key=lambda each: (-len(each), each)))


def without(text: str, specials: Sequence[str]) -> str:
    """`text` without the special tokens that it spells. specials: none of them empty."""
    while found := next((each for each in specials if each in text), None):
        text = text.replace(found, "")  # what is left may spell another one
    return text
