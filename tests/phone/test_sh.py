from __future__ import annotations

import shlex

import pytest
from distrl.phone.sh import Command, ShellSyntaxError, parse
from hypothesis import given
from hypothesis import strategies as st

WORD = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@given(st.lists(WORD, min_size=1, max_size=5))
def test_quoted_words_come_out_as_they_went_in(words: list[str]) -> None:
    assert parse(shlex.join(words)) == (Command(tuple(words), if_ok=False),)


@given(st.text("ab'\"\\ ;&|$`\n%(", max_size=15))
def test_any_line_is_parsed_or_refused(line: str) -> None:
    try:
        commands = parse(line)
    except ShellSyntaxError:
        return
    assert all(command.argv for command in commands)


def test_commands_are_parted_by_semicolons_newlines_and_and() -> None:
    assert parse("a 1; b&&c\nd ;") == (
        Command(("a", "1"), if_ok=False),
        Command(("b",), if_ok=False),
        Command(("c",), if_ok=True),
        Command(("d",), if_ok=False),
    )


def test_quotes_join_into_one_word() -> None:
    (command,) = parse(r"""x 'a;b'"c\"d\e"\ f""")
    assert command.argv == ("x", r'a;bc"d\e f')


@pytest.mark.parametrize(
    "line",
    ["a | b", "a & b", "a > f", "a $(b)", "a `b`", 'a "$b"', 'a "`b`"', "a *", "&& a", "a && ; b", "'a", '"a', "\\"],
)
def test_what_a_real_shell_would_act_on_is_refused(line: str) -> None:
    with pytest.raises(ShellSyntaxError):
        parse(line)
