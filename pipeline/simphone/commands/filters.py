"""`cat`, `grep`, `head`, `tail`, `sort` and `wc`: over files, or over a pipe's input."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from simphone.commands.base import FAILED, OK, CommandError, CommandResult, Invocation
from simphone.commands.storage import each, options
from simphone.handset import Handset

LINES: Final = 10
"""Default number of lines of `head` and `tail`."""
MOST_FILTERED: Final = 4 * 1024 * 1024
"""Bytes split into lines at once: a line of two letters takes twenty times its length in memory."""
UNKNOWN_IN_PATTERNS: Final = re.compile(r"[\\\[\](){}+?*]")


def _over(
    phone: Handset, call: Invocation, name: str, paths: Sequence[str], do: Callable[[bytes], bytes]
) -> CommandResult:
    """Apply it to each file, or to the pipe's input if none is named."""
    if not paths:
        if call.fed is None:
            raise CommandError("Needs 1 argument")
        return CommandResult(do(call.fed))
    return each(name, call, paths, lambda _, path: do(phone.files.read(path)))


async def cat(phone: Handset, call: Invocation) -> CommandResult:
    _, paths = options(call, "", least=0)
    return _over(phone, call, "cat", paths, lambda data: data)


async def sort(phone: Handset, call: Invocation) -> CommandResult:
    letters, paths = options(call, "ru", least=0)

    def one(data: bytes) -> bytes:
        lines = _lines(data)
        return _joined(sorted(set(lines) if "u" in letters else lines, reverse="r" in letters))

    return _over(phone, call, "sort", paths, one)


async def wc(phone: Handset, call: Invocation) -> CommandResult:
    letters, paths = options(call, "clw", least=0)
    if len(letters) != 1:
        raise CommandError("usage: wc -c | -l | -w [FILE…]")
    count = COUNTS[next(iter(letters))]
    if not paths:
        return _over(phone, call, "wc", paths, lambda data: f"{count(data)}\n".encode())
    return each("wc", call, paths, lambda given, path: f"{count(phone.files.read(path))} {given}\n".encode())


async def head(phone: Handset, call: Invocation) -> CommandResult:
    wanted, paths = _wanted(call.args)
    return _over(phone, call, "head", paths, lambda data: _joined(_lines(data)[:wanted]))


async def tail(phone: Handset, call: Invocation) -> CommandResult:
    wanted, paths = _wanted(call.args)
    return _over(phone, call, "tail", paths, lambda data: _joined(_lines(data)[-wanted:] if wanted else []))


async def grep(phone: Handset, call: Invocation) -> CommandResult:
    """Words, `|` between them, `^`, `$` and `.*`, which drivers use. Full patterns would need a time limit."""
    letters, words, rest = set[str](), list[str](), iter(call.args)
    pattern: str | None = None
    for word in rest:
        if word == "-e":
            pattern = next(rest, None)
        elif word.startswith("-") and len(word) > 1:
            letters |= set(word[1:])
        else:
            words.append(word)
    if pattern is None and words:
        pattern = words.pop(0)
    if pattern is None or letters - set("EFcioqvn"):
        raise CommandError("usage: grep [-EFcinqv] [-e] PATTERN [FILE…]")
    wanted = _pattern(pattern, letters)
    found: list[bytes] = []

    def one(data: bytes) -> bytes:
        lines = [(number, line) for number, line in enumerate(_lines(data), 1) if wanted(line) is not ("v" in letters)]
        found.extend(line for _, line in lines)
        if "q" in letters:
            return b""
        if "c" in letters:
            return b"%d\n" % len(lines)
        return _joined([b"%d:%s" % (number, line) if "n" in letters else line for number, line in lines])

    done = _over(phone, call, "grep", words, one)
    return CommandResult(done.stdout, done.stderr, OK if found and done.code == OK else FAILED)


def _pattern(pattern: str, letters: set[str]) -> Callable[[bytes], bool]:
    """Whether a line matches. Raises RefusedError for a pattern with other than words, |, ^, $ and .*"""
    fold = "i" in letters
    text = pattern.lower() if fold else pattern
    if "F" in letters:
        return lambda line: text.encode() in (line.lower() if fold else line)
    alternatives = re.split(r"\|" if "E" in letters else r"\\\|", text)
    if any(UNKNOWN_IN_PATTERNS.search(each.replace(".*", "").replace("\\.", "")) for each in alternatives):
        raise CommandError(f"{pattern!r}: this phone's grep knows words, |, ^, $ and .*; -F takes every sign as it is")
    return lambda line: any(_matches(each, line.lower() if fold else line) for each in alternatives)


def _matches(pattern: str, line: bytes) -> bool:
    """Whether the words between `.*` occur in order; linear in the line's length."""
    starts, ends = pattern.startswith("^"), pattern.endswith("$")
    words = [word.replace("\\.", ".").encode() for word in pattern.removeprefix("^").removesuffix("$").split(".*")]
    if starts and not line.startswith(words[0]):
        return False
    if ends and not line.endswith(words[-1]):
        return False
    if len(words) == 1 and starts and ends:
        return line == words[0]
    at, last = 0, len(line) - (len(words[-1]) if ends else 0)
    for word in words[:-1] if ends else words:
        at = line.find(word, at, last)
        if at < 0:
            return False
        at += len(word)
    return at <= last


def _wanted(args: Sequence[str]) -> tuple[int, list[str]]:
    """Parses the number of lines, as `-n 5`, `-n5` or `-5`, and the files."""
    wanted, paths, rest = str(LINES), list[str](), iter(args)
    for word in rest:
        if word == "-n":
            wanted = next(rest, "")
        elif word.startswith("-") and len(word) > 1:
            wanted = word[1:].removeprefix("n")
        else:
            paths.append(word)
    if not (wanted.isascii() and wanted.isdecimal()):
        raise CommandError(f"{wanted!r} is no number of lines")
    return int(wanted[:9]), paths


def _lines(data: bytes) -> list[bytes]:
    if len(data) > MOST_FILTERED:
        raise CommandError(f"{len(data)} bytes; at most {MOST_FILTERED} are looked through")
    return data.removesuffix(b"\n").split(b"\n") if data else []


COUNTS: Final[dict[str, Callable[[bytes], int]]] = {
    "c": len,
    "l": lambda data: data.count(b"\n"),
    "w": lambda data: sum(len(line.split()) for line in _lines(data)),
}


def _joined(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


COMMANDS = {"cat": cat, "grep": grep, "head": head, "sort": sort, "tail": tail, "wc": wc}
