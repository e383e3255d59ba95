from __future__ import annotations

import shlex

import pytest
from distrl.device.keyboard import UntypableError, typing_line
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
        line = typing_line(text)
    except UntypableError:
        assert not (text.isascii() and text.isprintable())
        return
    commands = parse(line)
    assert all(command.argv[:2] == ("input", "text") and len(command.argv) == 3 for command in commands)
    assert "".join(android_types(command.argv[2]) for command in commands) == text
    assert shlex.split(line, comments=False) == [
        word for number, command in enumerate(commands) for word in (("&&",) if number else ()) + command.argv
    ]


def test_the_character_that_cannot_be_typed_is_named() -> None:
    with pytest.raises(UntypableError, match=r"character 3 \('\\xe9'\)"):
        typing_line("caf\u00e9")
