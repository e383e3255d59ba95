from __future__ import annotations

import shlex

import pytest
from distrl.device.keyboard import (
    BEGIN,
    COMMANDS_PER_LINE,
    GO_ON,
    PIECE_CHARACTERS,
    TooLongError,
    UntypableError,
    typing_lines,
)
from hypothesis import given
from hypothesis import strategies as st
from simphone.sh import parse

PIECES = st.lists(st.sampled_from(["%", "s", " ", "%s", "'", '"', "\\", "a", ";", "\n", "\u00e9"])).map("".join)


def android_types(argument: str) -> str:
    """AOSP's `input text`, as its loop is written: "%s" is a space, everything else is itself."""
    typed, escape = list(argument), False
    at = 0
    while at < len(typed):
        if escape:
            escape = False
            if typed[at] == "s":
                typed[at] = " "
                at -= 1
                del typed[at]
        if typed[at] == "%":
            escape = True
        at += 1
    return "".join(typed)


@given(PIECES)
def test_android_types_exactly_the_text_or_it_is_refused(text: str) -> None:
    try:
        lines = typing_lines(text)
    except UntypableError:
        assert not (text.isascii() and text.isprintable())
        return
    typed = list[str]()
    for begin, line in zip([BEGIN, *[GO_ON] * len(lines)], lines, strict=False):
        commands = parse(line)
        assert len(commands) <= COMMANDS_PER_LINE
        assert all(command.argv[:-1] == tuple(begin.split()) for command in commands)
        typed.append("".join(android_types(command.argv[-1]) for command in commands))
        assert shlex.split(line, comments=False) == [
            word for number, command in enumerate(commands) for word in (("&&",) if number else ()) + command.argv
        ]
    assert "".join(typed) == text
    assert all(0 < len(piece) <= PIECE_CHARACTERS for piece in typed)


def test_the_character_that_cannot_be_typed_is_named() -> None:
    with pytest.raises(UntypableError, match=r"character 3 \('\\xe9'\)"):
        typing_lines("caf\u00e9")


def test_a_text_of_any_characters_that_is_too_long_says_so() -> None:
    with pytest.raises(TooLongError, match="2001 characters to type; at most 2000"):
        typing_lines("x" * 2001)
