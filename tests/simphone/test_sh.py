from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simphone.sh import Command, Redirection, ShellSyntaxError, parse

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


def test_pipes_alternatives_and_redirections() -> None:
    assert parse("a|grep x || b>/sdcard/f 2>&1; c 2>> '/sdcard/a b' >/dev/null") == (
        Command(("a",), if_ok=False),
        Command(("grep", "x"), if_ok=False, piped=True),
        Command(
            ("b",),
            if_ok=False,
            if_failed=True,
            redirections=(Redirection(1, "/sdcard/f", append=False), Redirection(2, "", append=False)),
        ),
        Command(
            ("c",),
            if_ok=False,
            redirections=(Redirection(2, "/sdcard/a b", append=True), Redirection(1, "/dev/null", append=False)),
        ),
    )


def test_the_last_status_is_expanded_but_for_single_quotes() -> None:
    (command,) = parse(r"""a$?b"$?" '$?' \$\? "\$?" """)
    assert command.expanded(7) == ("a7b7", "$?", "$?", "$?")


def test_quotes_join_into_one_word() -> None:
    (command,) = parse(r"""x 'a;b'"c\"d\e"\ f""")
    assert command.argv == ("x", r'a;bc"d\e f')


@pytest.mark.parametrize(
    "line",
    [
        "a | b",
        "a | input tap 1 1",
        "a |",
        "| grep a",
        "a | | grep b",
        "a & b",
        "a > f",
        "a > ../f",
        "a >",
        "> /sdcard/f",
        "a >&1",
        "a 3>/dev/null",
        "a < /sdcard/f",
        "a &> /dev/null",
        "a || || b",
        "a ||",
        "a $(b)",
        "a `b`",
        'a "$b"',
        'a "`b`"',
        "a *",
        "&& a",
        "a && ; b",
        "'a",
        '"a',
        "\\",
    ],
)
def test_what_a_real_shell_would_act_on_is_refused(line: str) -> None:
    with pytest.raises(ShellSyntaxError):
        parse(line)
