"""What stands behind a pipe, and where output goes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phone_shell import last, runs
from simphone.commands import filters

PIECE = st.sampled_from(["a", "b", "ab", ".*", "^", "$", r"\.", "x.y"])
PATTERN = st.tuples(st.sampled_from(["", "^"]), st.lists(st.sampled_from(["a", "b", "ab", ".*", r"\."]), max_size=5),
                    st.sampled_from(["", "$"])).map(lambda parts: parts[0] + "".join(parts[1]) + parts[2])  # fmt: skip


@settings(deadline=None)
@given(st.lists(PATTERN, min_size=1, max_size=3), st.lists(st.text("abB. ", max_size=8), max_size=6), st.booleans())
def test_grep_finds_what_a_regular_expression_finds(patterns: list[str], lines: list[str], fold: bool) -> None:
    flags = frozenset("Ei" if fold else "E")
    wanted = filters._pattern("|".join(patterns), flags)
    meant = re.compile("|".join(patterns), re.IGNORECASE if fold else 0)
    assert [wanted(line.encode()) for line in lines] == [bool(meant.search(line)) for line in lines]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dumpsys window windows | grep -E 'mCurrentFocus|mFocusedApp' | wc -l", "2\n"),
        ("dumpsys window | grep -i MCURRENTFOCUS", "  mCurrentFocus=Window{5f0cca1 u0 com.sim.launcher/"
                                                   "com.sim.launcher.Home}\n"),
        ("pm list packages -s | sort -r | head -n 2 | tail -1", "package:com.sim.launcher\n"),
        ("pm list packages -s|grep -c sim", "2\n"),
        ("pm list packages | grep -v -F com.s | wc -c", "0\n"),
        ("pm list packages | grep -n 'browser$' | cat", "1:package:com.sim.browser\n"),
        ("pm list packages | grep 'browser\\|clock' | wc -w", "2\n"),
        ("echo a | grep -q b || echo none", "none\n"),
        ("true || echo never; false || echo once", "once\n"),
        ("nope 2>/dev/null; echo $?", "127\n"),
        ("nope 2>&1 | wc -l", "1\n"),
        ("nope > /sdcard/f 2>&1; grep -c inaccessible /sdcard/f", "1\n"),
        ("echo a > /sdcard/f; echo b >> /sdcard/f; cat /sdcard/f", "a\nb\n"),
        ("echo 'a|b > /c' | cat", "a|b > /c\n"),
        ("screencap -p > /sdcard/s.png && screencap -p /sdcard/t.png && sha256sum -b /sdcard/s.png /sdcard/t.png "
         "| sort -u | wc -l", "1\n"),
        ("exec echo a | cat; echo b", "a\n"),
        ("head -0 /dev/null 2>/dev/null || echo no such file", "no such file\n"),
    ],
)  # fmt: skip
def test_output_goes_where_the_line_says(line: str, said: str) -> None:
    assert last(line) == said


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("echo a > /passwd", 1, "/passwd: Permission denied"),
        ("echo a > /sdcard/../data/x", 1, "Permission denied"),
        ("echo a > /sdcard", 1, "Is a directory"),
        ("logcat | grep a", 0, "logcat -d"),
        ("logcat > /sdcard/f", 1, "logcat -d"),
        ("grep", 1, "usage"),
        ("grep a", 1, "Needs 1 argument"),
        ("echo a | grep '[a]'", 1, "knows words"),
        ("echo a | grep -P a", 1, "usage"),
        ("echo a | head -n x", 1, "no number of lines"),
        ("echo a | wc", 1, "usage"),
        ("cat", 1, "Needs 1 argument"),
        ("echo a | input tap 1 1", 2, "pipes into cat, grep"),
    ],
)
def test_what_cannot_be_done_says_why(line: str, code: int, why: str) -> None:
    (result,) = runs(line)
    assert result.follow is None
    assert why in result.stderr.decode()
    if "logcat | " not in line:
        assert result.code == code


def test_a_fault_begins_after_the_answer_wherever_the_answer_goes() -> None:
    (result,) = runs("simctl fault slow | grep slow | cat > /dev/null && echo ok")
    assert (result.stdout, len(result.afterwards)) == (b"ok\n", 1)


def test_nothing_runs_of_a_line_that_is_refused() -> None:
    _, listed = runs("touch /sdcard/f; echo a | tee /sdcard/g", "ls -d /sdcard/f")
    assert listed.code == 1


def test_only_so_much_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "MOST_FILTERED", 3)
    _, long = runs("echo 123 > /sdcard/f", "sort /sdcard/f")
    assert b"at most 3" in long.stderr
