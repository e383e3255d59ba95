"""The interface of a shell command: arguments and working directory in, output and exit code out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from simphone.handset import Handset

OK, FAILED, USAGE, NOT_FOUND = 0, 1, 2, 127
SHELL = "/system/bin/sh"
STDOUT, STDERR = 1, 2
Pieces = tuple[tuple[int, bytes], ...]
"""Output to STDOUT and STDERR, in order."""
MOST_OUTPUT = 64 * 1024 * 1024
"""Bytes that one line may print: a long line can name a large file many times."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """args: the words after the command's name. directory: the working directory, a normalised path. fed: the input
    from a pipe; None without one. programs: the names of the shell's commands.
    """

    args: tuple[str, ...]
    directory: str = "/"
    fed: bytes | None = None
    programs: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class CommandResult:
    """follow: a stream of further output after stdout; the rest of the line is not run.
    pieces: stdout and stderr of a whole line in order; a single command prints stdout first.
    directory: the new working directory, if it has changed. ended: whether the shell exits.
    afterwards: called once the answer has arrived or the host has left: a command that makes the phone silent is
    answered first.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    code: int = OK
    afterwards: tuple[Callable[[], None], ...] = ()
    follow: AsyncIterator[bytes] | None = None
    directory: str | None = None
    ended: bool = False
    pieces: Pieces = ()

    @property
    def printed(self) -> Pieces:
        return self.pieces or ((STDOUT, self.stdout), (STDERR, self.stderr))


class CommandError(Exception):
    """A command that cannot be done; its text goes to stderr, after the command's name."""


Command = Callable[[Handset, Invocation], Awaitable[CommandResult]]


def said(text: str, code: int = OK) -> CommandResult:
    return CommandResult(text.encode("utf-8", "surrogateescape"), code=code)


def complained(text: str, code: int = FAILED) -> CommandResult:
    return CommandResult(stderr=text.encode("utf-8", "surrogateescape"), code=code)
