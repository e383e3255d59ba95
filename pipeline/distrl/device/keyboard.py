"""Text that a model wrote, on its way into `input text`: quoted so that it is typed to its last letter and never run.

`input text` types printable ASCII and reads %s as a space. It cannot be told to type the two characters "%s", so text
that holds them is typed by two commands, parted between the two.
"""

from __future__ import annotations

import re
import shlex

MAX_CHARACTERS = 2000
"""Longer than any field; a command line has a limit too."""
_UNTYPABLE = re.compile(r"[^\x20-\x7e]")
_BETWEEN = re.compile(r"(?<=%)(?=s)")


class UntypableError(ValueError):
    """Text that `input text` cannot type; the message says where and why."""


def typing_line(text: str) -> str:
    """The shell line that types `text` on the phone; empty for an empty text. Raises UntypableError."""
    if len(text) > MAX_CHARACTERS:
        raise UntypableError(f"{len(text)} characters to type; at most {MAX_CHARACTERS} are typed at once")
    if found := _UNTYPABLE.search(text):
        raise UntypableError(f"character {found.start()} ({found.group()!a}) cannot be typed; printable ASCII can")
    pieces = [piece.replace(" ", "%s") for piece in _BETWEEN.split(text) if piece]
    return " && ".join(f"input text {shlex.quote(piece)}" for piece in pieces)
