"""`adb shell` as a person uses it: a line, lines that are piped into it, and a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time

import pytest

from .conftest import RunAdb

DEADLINE_S = 60.0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("dumpsys window | grep -E 'mCurrentFocus'", b"com.sim.launcher/com.sim.launcher.Home}\n"),
        ("nope 2>/dev/null || echo none", b"none\n"),
        ("echo a > /sdcard/f; cat /sdcard/f", b"a\n"),
    ],
)
def test_a_line_as_adb_users_write_it(run_adb: RunAdb, line: str, said: bytes) -> None:
    assert run_adb("shell", line).stdout.endswith(said)


def test_lines_that_are_piped_in(run_adb: RunAdb) -> None:
    done = run_adb("shell", said=b"cd /sdcard\npwd\nnope\nexit 3\n")
    assert (done.returncode, done.stdout) == (3, b"/sdcard\n")
    assert done.stderr == b"/system/bin/sh: nope: inaccessible or not found\n"


def test_a_terminal_prompts_edits_follows_the_log_and_ends(adb_program: list[str], run_adb: RunAdb) -> None:
    ours, theirs = pty.openpty()
    said = b""

    def wait_for(words: bytes) -> None:
        nonlocal said
        until = time.monotonic() + DEADLINE_S
        while words not in said:
            assert select.select([ours], [], [], max(0.0, until - time.monotonic()))[0], said
            said += os.read(ours, 65536)
        said = said.partition(words)[2]

    try:
        with subprocess.Popen([*adb_program, "shell"], stdin=theirs, stdout=theirs, stderr=theirs) as shell:
            try:
                wait_for(b"sim:/ $ ")
                os.write(ours, b"ecko\x7f\x7fho hi\r")
                wait_for(b"\r\nhi\r\nsim:/ $ ")
                os.write(ours, b"logcat -v raw\r")
                wait_for(b"beginning of main\r\n")
                run_adb("shell", "input tap 7 8")
                wait_for(b"tap at (7, 8)\r\n")
                os.write(ours, b"\x03")
                wait_for(b"^C\r\nsim:/ $ ")
                os.write(ours, b"exit 5\r")
                assert shell.wait(DEADLINE_S) == 5
            finally:
                shell.kill()
    finally:
        os.close(ours)
        os.close(theirs)
