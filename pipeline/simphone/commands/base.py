"""What a command of the phone's shell is: words and the directory it runs in, to what it prints and exits with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass

from simphone.handset import Handset

OK, FAILED, USAGE, NOT_FOUND = 0, 1, 2, 127
SHELL = "/system/bin/sh"
STDOUT, STDERR = 1, 2
Pieces = tuple[tuple[int, bytes], ...]
"""What went to STDOUT and STDERR, in the order in which it was printed."""
MOST_OUTPUT = 64 * 1024 * 1024
"""Bytes that one line may print: a line of a million letters can name a large file many times."""


@dataclass(frozen=True, slots=True)
class Call:
    """args: the words after the command's name. directory: where the shell stands, a plain path. fed: what a pipe
    brings; None where there is none. programs: the names that the shell finds.
    """

    args: tuple[str, ...]
    directory: str = "/"
    fed: bytes | None = None
    programs: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """follow: what is still printed after stdout, as it comes; a line ends there, whatever else stood on it.
    pieces: stdout and stderr of a whole line in their order; a single command prints stdout first.
    directory: where the shell stands from now on, if that has changed. ended: whether the shell was told to exit.
    afterwards: to be called once the answer has arrived. A phone that falls silent first says that it will.
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


class RefusedError(Exception):
    """A command that cannot be done as asked; its text goes to stderr, after the command's name."""


Command = Callable[[Handset, Call], Awaitable[Result]]


def said(text: str, code: int = OK) -> Result:
    return Result(text.encode("utf-8", "surrogateescape"), code=code)


def complained(text: str, code: int = FAILED) -> Result:
    return Result(stderr=text.encode("utf-8", "surrogateescape"), code=code)
