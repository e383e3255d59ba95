"""The part of `sh` that a simulated phone understands: words, quotes, `;`, newlines, `&&`, `||`; pipes into a few
filters; output into a file or to /dev/null. Only `$?` is expanded, from which drivers of phones without shell protocol
2 read a command's exit code.

Everything else (another pipe, a redirection to a relative name, a substitution, a job) is refused as a syntax error
before the first command runs, so that a missing quote is found here and not on a real phone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

OPERATORS = frozenset("|&<>()`$*?[]#~!{}")
"""Characters with a meaning for a shell if unquoted. Expansions are refused too."""
EXPANDED_IN_QUOTES = frozenset("$`")
ESCAPABLE_IN_QUOTES = frozenset('"\\$`')
FILTERS: Final = ("cat", "grep", "head", "nc", "sort", "tail", "wc")
"""The commands allowed behind a pipe."""
JOINING: Final = ("&&", "||", "|")
REDIRECTING: Final = frozenset("0123456789>")
_REDIRECTION: Final = re.compile(r"([0-9]?)>(>?)(&1)?[ \t]*")


class ShellSyntaxError(Exception):
    """A line that this shell cannot parse."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """Output 1 or 2 goes to the file `target`, an absolute path; if it is "", to where output 1 goes."""

    output: int
    target: str
    append: bool


@dataclass(frozen=True, slots=True)
class Command:
    """Words of one command. if_ok, if_failed: run only if the command before it exited with 0, or only if not.
    piped: it reads the output of the command before it.

    statuses: the positions of "$?", as (word, character) of argv, from which it is removed.
    """

    argv: tuple[str, ...]
    if_ok: bool
    statuses: tuple[tuple[int, int], ...] = ()
    if_failed: bool = False
    piped: bool = False
    redirections: tuple[Redirection, ...] = ()

    def expanded(self, status: int) -> tuple[str, ...]:
        """The words, after a command that exited with `status`."""
        words = list(self.argv)
        for word, at in reversed(self.statuses):
            words[word] = f"{words[word][:at]}{status}{words[word][at:]}"
        return tuple(words)


@dataclass
class _Reader:
    """joined: the operator before the words being read: "", "&&", "||" or "|"."""

    line: str
    at: int = 0
    commands: list[Command] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    statuses: list[tuple[int, int]] = field(default_factory=list)
    redirections: list[Redirection] = field(default_factory=list)
    joined: str = ""

    def take(self) -> str:
        if self.at >= len(self.line):
            raise ShellSyntaxError("no closing quote")
        self.at += 1
        return self.line[self.at - 1]

    def end_command(self, joined: str) -> None:
        """joined: the operator between this command and the next."""
        if not self.words and (joined or self.joined or self.redirections):
            raise ShellSyntaxError(f"unexpected {joined or self.joined or '>'!r}")
        if self.joined == "|" and self.words[0] not in FILTERS:
            raise ShellSyntaxError(f"unexpected '|': this phone pipes into {', '.join(FILTERS)}")
        if self.words:
            self.commands.append(
                Command(
                    tuple(self.words),
                    self.joined == "&&",
                    tuple(self.statuses),
                    self.joined == "||",
                    self.joined == "|",
                    tuple(self.redirections),
                )
            )
        self.words, self.statuses, self.redirections, self.joined = [], [], [], joined

    def status_follows(self, parts: list[str]) -> bool:
        """Whether the "$" just read begins "$?"; then its position after these parts of a word is recorded."""
        if not self.line.startswith("?", self.at):
            return False
        self.at += 1
        self.statuses.append((len(self.words), sum(map(len, parts))))
        return True


def parse(line: str) -> tuple[Command, ...]:
    """The commands of a line, in order. Raises ShellSyntaxError."""
    reader = _Reader(line)
    while reader.at < len(line):
        char = line[reader.at]
        if char in " \t":
            reader.at += 1
        elif char in ";\n":
            reader.at += 1
            reader.end_command("")
        elif joined := next((sign for sign in JOINING if line.startswith(sign, reader.at)), ""):
            reader.at += len(joined)
            reader.end_command(joined)
        elif char in REDIRECTING and (found := _REDIRECTION.match(line, reader.at)):
            reader.at = found.end()
            reader.redirections.append(_redirection(reader, *found.groups()))
        else:
            reader.words.append(_word(reader))
    reader.end_command("")
    return tuple(reader.commands)


def _redirection(reader: _Reader, output: str, append: str, same: str | None) -> Redirection:
    if same and output == "2" and not append:
        return Redirection(2, "", append=False)
    target = "" if same or reader.at >= len(reader.line) else _word(reader)
    if not target.startswith("/") or output not in ("", "1", "2"):
        raise ShellSyntaxError("unexpected '>': this phone writes to /dev/null or to a file's whole path")
    return Redirection(int(output or 1), target, bool(append))


def _word(reader: _Reader) -> str:
    parts: list[str] = []
    while reader.at < len(reader.line) and reader.line[reader.at] not in " \t\n;|>":
        if reader.line.startswith("&&", reader.at):
            break
        char = reader.take()
        if char == "'":
            parts.append(_until_single_quote(reader))
        elif char == '"':
            _until_double_quote(reader, parts)
        elif char == "\\":
            parts.append(reader.take())
        elif char == "$" and reader.status_follows(parts):
            pass
        elif char in OPERATORS:
            raise ShellSyntaxError(f"unexpected {char!r}")
        else:
            parts.append(char)
    return "".join(parts)


def _until_single_quote(reader: _Reader) -> str:
    end = reader.line.find("'", reader.at)
    if end < 0:
        raise ShellSyntaxError("no closing quote")
    text, reader.at = reader.line[reader.at : end], end + 1
    return text


def _until_double_quote(reader: _Reader, parts: list[str]) -> None:
    while (char := reader.take()) != '"':
        if char == "\\":
            escaped = reader.take()
            parts.append(escaped if escaped in ESCAPABLE_IN_QUOTES else char + escaped)
        elif char == "$" and reader.status_follows(parts):
            pass
        elif char in EXPANDED_IN_QUOTES:
            raise ShellSyntaxError(f"unexpected {char!r}")
        else:
            parts.append(char)
