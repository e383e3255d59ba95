"""The part of `sh` that a simulated phone understands: words, quotes, `;`, newlines and `&&`. Nothing is ever expanded
but `$?`, by which drivers of phones without shell protocol 2 learn how a command ended.

What would start a pipe, a redirection, a substitution or a job is refused as a syntax error, so that a caller who
forgets to quote learns of it here and not on a real phone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

OPERATORS = frozenset("|&<>()`$*?[]#~!{}")
"""Characters that mean something to a shell where nothing quotes them. Those it would only expand are refused too."""
EXPANDED_IN_QUOTES = frozenset("$`")
ESCAPABLE_IN_QUOTES = frozenset('"\\$`')


class ShellSyntaxError(Exception):
    """A line that this shell does not understand."""


@dataclass(frozen=True, slots=True)
class Command:
    """Words of one command. if_ok: it runs only if the command before it exited with 0.

    statuses: where "$?" stands, as (word, character) of argv, in which it takes no place.
    """

    argv: tuple[str, ...]
    if_ok: bool
    statuses: tuple[tuple[int, int], ...] = ()

    def expanded(self, status: int) -> tuple[str, ...]:
        """The words, after a command that exited with `status`."""
        words = list(self.argv)
        for word, at in reversed(self.statuses):
            words[word] = f"{words[word][:at]}{status}{words[word][at:]}"
        return tuple(words)


@dataclass
class _Reader:
    line: str
    at: int = 0
    commands: list[Command] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    statuses: list[tuple[int, int]] = field(default_factory=list)
    if_ok: bool = False

    def take(self) -> str:
        if self.at >= len(self.line):
            raise ShellSyntaxError("no closing quote")
        self.at += 1
        return self.line[self.at - 1]

    def end_command(self, next_if_ok: bool) -> None:
        if self.words:
            self.commands.append(Command(tuple(self.words), self.if_ok, tuple(self.statuses)))
        elif next_if_ok or self.if_ok:
            raise ShellSyntaxError("unexpected '&&'")
        self.words, self.statuses, self.if_ok = [], [], next_if_ok

    def status_follows(self, parts: list[str]) -> bool:
        """Whether the "$" just taken begins "$?"; then it is noted as standing after these parts of a word."""
        if not self.line.startswith("?", self.at):
            return False
        self.at += 1
        self.statuses.append((len(self.words), sum(map(len, parts))))
        return True


def parse(line: str) -> tuple[Command, ...]:
    """The commands of a line, in order. Raises ShellSyntaxError."""
    reader = _Reader(line)
    while reader.at < len(line):
        if line[reader.at] in " \t":
            reader.at += 1
        elif line[reader.at] in ";\n":
            reader.at += 1
            reader.end_command(next_if_ok=False)
        elif line.startswith("&&", reader.at):
            reader.at += 2
            reader.end_command(next_if_ok=True)
        else:
            reader.words.append(_word(reader))
    reader.end_command(next_if_ok=False)
    return tuple(reader.commands)


def _word(reader: _Reader) -> str:
    parts: list[str] = []
    while reader.at < len(reader.line) and reader.line[reader.at] not in " \t\n;":
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
