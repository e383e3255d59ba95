"""The phone's files as its shell shows them."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phone_shell import last, runs, with_shell
from simphone.commands.base import MOST_OUTPUT
from simphone.shell import Shell


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["ls /data/local"], "tmp\n"),
        (["ls"], "data\nsdcard\n"),
        (["mkdir -p /sdcard/a/b", "touch /sdcard/a/.hidden /sdcard/a/f", "ls /sdcard/a"], "b\nf\n"),
        (["mkdir /sdcard/a", "touch /sdcard/a/.h", "ls -a /sdcard/a"], ".\n..\n.h\n"),
        (["touch /sdcard/f", "ls -d /sdcard/f /sdcard"], "/sdcard/f\n/sdcard\n"),
        (["mkdir -p /sdcard/a/b", "ls -R /sdcard/a"], "/sdcard/a:\nb\n\n/sdcard/a/b:\n"),
        (["touch /sdcard/f", "ls -l /sdcard/f"], "-rw-rw---- 1 shell shell 0 2024-01-01 00:00 /sdcard/f\n"),
        (["log hello", "touch /sdcard/f", "mv /sdcard/f /sdcard/Music", "ls /sdcard/Music"], "f\n"),
        (["touch /sdcard/f", "cp /sdcard/f /sdcard/g", "rm /sdcard/f", "ls -d /sdcard/g"], "/sdcard/g\n"),
        (["mkdir -p /sdcard/a/b", "rm -rf /sdcard/a /sdcard/none", "rm -f", "ls /sdcard/DCIM"], ""),
        (["touch '/sdcard/a b'", "stat -c '%n %s %F %a' '/sdcard/a b'"], "/sdcard/a b 0 regular file 660\n"),
        (["touch /storage/emulated/0/f", "ls -d /sdcard/f"], "/sdcard/f\n"),
        (["cd /sdcard && touch f && cd .. && ls sdcard/f; pwd"], "sdcard/f\n/\n"),
        (["test -d /sdcard && echo yes"], "yes\n"),
        (["touch /sdcard/f", "wc -c /sdcard/f"], "0 /sdcard/f\n"),
    ],
)
def test_files_are_made_shown_and_removed(lines: list[str], said: str) -> None:
    assert last(*lines) == said


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ls /none", "ls: /none: No such file or directory"),
        ("cat /sdcard", "cat: /sdcard: Is a directory"),
        ("cat ''", "cat: : No such file or directory"),
        ("rm /sdcard/DCIM", "Is a directory"),
        ("rm -rf /", "Permission denied"),
        ("rm -rf /data", "Permission denied"),
        ("rm", "Needs 1 argument"),
        ("rm -x /sdcard/f", "Unknown option 'x'"),
        ("mkdir /sdcard", "File exists"),
        ("mkdir /sdcard/a/b", "No such file or directory"),
        ("mkdir /etc", "Permission denied"),
        ("touch /data/x", "Permission denied"),
        ("rmdir /sdcard", "Directory not empty"),
        ("mv /sdcard/none /sdcard/f", "No such file or directory"),
        ("cp /sdcard/none", "Needs 2 arguments"),
        ("cp /sdcard/a /sdcard/b /none", "'/none' is not a directory"),
        ("cp /sdcard/a ''", "No such file"),
        ("cd /sdcard/none", "No such file"),
        ("cd a b", "usage"),
        ("wc /sdcard", "usage"),
        ("test /sdcard", "usage"),
        (f"stat -c {'%n' * 200} /sdcard", "at most 256"),
    ],
)
def test_what_cannot_be_done_says_why(line: str, why: str) -> None:
    (result,) = runs(line)
    assert result.code == 1
    assert why in result.stderr.decode()


def test_one_file_that_is_missing_keeps_no_other_from_being_printed() -> None:
    results = runs("mkdir /sdcard/a", "ls -d /none /sdcard/a")
    assert (results[1].code, results[1].stdout) == (1, b"/sdcard/a\n")


def test_test_is_false_for_what_is_not_there() -> None:
    assert [result.code for result in runs("test -e /none", "test -f /sdcard", "test -f ''", "test -e /")] == [
        1,
        1,
        1,
        0,
    ]


def test_a_digest_is_the_files() -> None:
    async def play(shell: Shell) -> None:
        shell.phone.files.write("/sdcard/f", b"abc")
        for name in ("md5", "sha256"):
            said = (await shell.run(f"{name}sum /sdcard/f")).stdout.decode()
            assert said == f"{hashlib.new(name, b'abc').hexdigest()}  /sdcard/f\n"

    with_shell(play)


def test_a_file_that_a_line_names_many_times_is_digested_once_and_away_from_the_other_phones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[int] = []
    new = hashlib.new

    def noting(*arguments: Any, **named: Any) -> Any:
        made.append(threading.get_ident())
        return new(*arguments, **named)

    monkeypatch.setattr(hashlib, "new", noting)

    async def play(shell: Shell) -> None:
        shell.phone.files.write("/sdcard/f", b"abc")
        result = await shell.run("md5sum" + " /sdcard/f" * 2_000 + " /sdcard/missing")
        assert result.stdout == f"{new('md5', b'abc').hexdigest()}  /sdcard/f\n".encode() * 2_000
        assert (result.code, b"/sdcard/missing: No such file" in result.stderr) == (1, True)

    with_shell(play)
    assert len(made) == 1
    assert made[0] != threading.get_ident()


def test_what_a_line_prints_is_bounded() -> None:
    async def play(shell: Shell) -> None:
        shell.phone.files.write("/sdcard/f", bytes(20 * 1024 * 1024))
        for line in ("cat" + " /sdcard/f" * 9, ";".join(["cat /sdcard/f"] * 9)):
            result = await shell.run(line)
            assert result.code == 1
            assert len(result.stdout) <= MOST_OUTPUT
            assert b"more than" in result.stderr

    with_shell(play)


@settings(deadline=None)
@given(
    st.text("ab/.-* '\u00e9", max_size=12), st.sampled_from(["ls", "cat", "rm -r", "mkdir -p", "touch", "stat", "cd"])
)
def test_no_path_breaks_a_command_or_leaves_the_two_roots(path: str, command: str) -> None:
    async def play(shell: Shell) -> None:
        quoted = path.replace("'", "")
        result = await shell.run(f"{command} '{quoted}'")
        assert result.code in (0, 1)
        assert (await shell.run("ls /; ls /data; ls /data/local")).stdout == b"data\nsdcard\nlocal\ntmp\n"

    with_shell(play)
