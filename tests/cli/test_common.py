"""What commands print and suggest."""

from __future__ import annotations

import pytest
from distrl.cli.common import command_line, note


def test_an_error_moves_no_cursor_whoever_wrote_a_part_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    note("policy.\x1b]0;mine\x07: no such setting\n  hint: \u202eone of: a")
    assert capsys.readouterr().err == "policy.\\x1b]0;mine\\x07: no such setting\n  hint: \\u202eone of: a\n"


def test_a_command_of_two_words_is_two_words_of_its_line() -> None:
    line = command_line("policy check", None, ["run=a", "judge.api_key=s3cret"], {"--rows": 8, "--json": False})
    assert line == ["distrl", "policy", "check", "--set", "run=a", "--rows", "8"]
