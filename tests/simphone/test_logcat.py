from __future__ import annotations

import asyncio
import re

import pytest
from phone_shell import last, runs, with_shell
from simphone import logbook
from simphone.commands.base import CommandResult
from simphone.shell import Shell
from waiting import WITHIN_S

THREADTIME = re.compile(r"(\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) +\d+ +\d+ ([VDIWEF]) (\S+) *: (.*)")


def test_the_log_tells_what_the_phone_did_at_its_own_time_one_line_each() -> None:
    lines = last("input tap 5 200", "am start -n com.sim.clock/.Face", "input keyevent BACK", "logcat -d").splitlines()
    assert lines[0] == "--------- beginning of main"
    told = [THREADTIME.fullmatch(line) for line in lines[1:]]
    assert all(told), lines
    assert [match.group(1)[-6:] for match in told if match] == sorted(match.group(1)[-6:] for match in told if match)
    text = "\n".join(lines)
    assert "tap at (5, 200)" in text
    assert "START u0 {cmp=com.sim.clock/.Face} from uid 2000" in text
    assert "Displayed com.sim.clock/.Face" in text
    assert "key KEYCODE_BACK" in text


def test_two_phones_that_do_the_same_write_the_same() -> None:
    lines = ("input tap 5 200", "input swipe 1 2 3 90", "input text 'a b'", "simctl reset --seed 3", "logcat -d")
    assert last(*lines) == last(*lines)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-v brief", "I/one     (  612): a\nE/two     (  612): b\nI/one     (  612): c\n"),
        ("-v raw", "a\nb\nc\n"),
        ("-v tag", "I/one     : a\nE/two     : b\nI/one     : c\n"),
        ("-v raw -t 2", "b\nc\n"),
        ("-v raw two:V '*:S'", "b\n"),
        ("-v raw -s one", "a\nc\n"),
        ("-v raw '*:W'", "b\n"),
        ("--format=raw -b main,system -t 1 one", "c\n"),
    ],
)
def test_formats_and_filters(options: str, said: str) -> None:
    got = last("log -t one a", "log -p e -t two b", "log -t one c", f"logcat -d {options}")
    assert got.removeprefix("--------- beginning of main\n") == said


@pytest.mark.parametrize(
    "line",
    ["logcat -v odd", "logcat -t x", "logcat -t 0", "logcat -t", "logcat -b odd", "logcat --odd", "logcat x:Q"],
)
def test_what_logcat_does_not_know_is_refused(line: str) -> None:
    (result,) = runs(line)
    assert (result.code, result.follow) == (1, None)
    assert result.stderr


def test_a_message_is_one_line_and_bounded() -> None:
    said = last("input text 'a\nI/fake: b\x07'", f"input text {'x' * 5000}", "logcat -d -v raw").splitlines()
    assert any("a.I/fake: b." in line for line in said)
    assert all(len(line) <= logbook.LONGEST_MESSAGE for line in said)


def test_only_the_newest_are_kept_and_clear_forgets_them() -> None:
    lines = "; ".join(f"log {number}" for number in range(logbook.MOST_ENTRIES + 3))
    said = last(lines, "logcat -d -v raw").splitlines()[1:]
    assert said == [str(number) for number in range(3, logbook.MOST_ENTRIES + 3)]
    assert last("log a", "logcat -c", "log b", "logcat -d -v raw").splitlines()[1:] == ["b"]
    assert last("log a", "logcat --clear", "logcat -g") == "main: ring buffer is 500 entries, 0 used\n"


def test_following_prints_what_is_there_and_then_what_comes() -> None:
    async def play(shell: Shell) -> None:
        async def line(result: CommandResult) -> bytes:
            assert result.follow is not None
            return await asyncio.wait_for(anext(result.follow), WITHIN_S)

        await shell.run("log a; log b")
        every, newest = await shell.run("logcat -v raw"), await shell.run("logcat -v raw -T 1 log:I '*:S'; echo never")
        assert [await line(every), await line(every)] == [b"a\n", b"b\n"]
        assert await line(newest) == b"b\n"
        waiting = asyncio.ensure_future(line(newest))
        await asyncio.sleep(0)
        assert not waiting.done()
        await shell.run("input keyevent HOME; logcat -c; log c")
        assert await waiting == b"c\n"
        assert newest.stdout == b"--------- beginning of main\n"

    with_shell(play)
