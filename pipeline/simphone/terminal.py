"""`adb shell` without a command: an interactive shell, or one with piped input.

With a pty the phone echoes the input and edits the line; without one it prints only results. Only BACKSPACE, Ctrl-C,
Ctrl-D and RETURN have an effect; arrow keys are dropped.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from simphone.commands.base import STDOUT, Pieces
from simphone.shell import Shell

PROMPT: Final = b"sim:%s $ "
LONGEST_LINE: Final = 64 * 1024
INTERRUPT, END = 0x03, 0x04
RETURNS: Final = b"\r\n"
ERASE: Final = b"\x08\x7f"
FIRST_PRINTABLE: Final = 0x20
_ESCAPED: Final = re.compile(rb"\x1b(\[[0-9;?]*[ -/]*[@-~]?|O.?|.?)")

Read = Callable[[], Awaitable[bytes]]
"""The host's input since the last call; b"" at its end."""
Write = Callable[[Pieces], Awaitable[None]]
"""Sends the two outputs, in order."""


class Terminal:
    """pty: whether the host's end is a terminal."""

    def __init__(self, shell: Shell, read: Read, write: Write, pty: bool) -> None:
        self._shell = shell
        self._read = read
        self._write = write
        self._pty = pty
        self._directory = "/"
        self._code = 0

    async def serve(self) -> int:
        """Run lines until `exit` or the end of the input. Returns the exit code of the last one."""
        await self._prompt()
        async for line in self._lines():
            result = await self._shell.run(line.decode("utf-8", "replace"), self._directory, self._code)
            self._directory, self._code = result.directory or self._directory, result.code
            await self._print(*result.printed)
            if result.follow is not None:
                await self._follow(result.follow)
            for call in result.afterwards:
                call()
            if result.ended:
                break
            await self._prompt()
        return self._code

    async def _lines(self) -> AsyncIterator[bytes]:
        """The input, line by line, echoed as it arrives."""
        line = bytearray()
        while typed := await self._read():
            shown = bytearray()
            for key in _ESCAPED.sub(b"", typed) if self._pty else typed:
                if key in RETURNS:
                    await self._echo(bytes(shown) + b"\n")
                    await asyncio.sleep(0)  # a payload may hold a million empty lines
                    yield bytes(line)
                    line.clear()
                    shown.clear()
                elif self._pty and key == END and not line:
                    return
                else:
                    shown += self._edited(line, key)
            await self._echo(bytes(shown))
        if line:
            yield bytes(line)

    def _edited(self, line: bytearray, key: int) -> bytes:
        """Apply a key to the line. Returns the echo."""
        if self._pty and key == INTERRUPT:
            line.clear()
            return b"^C\n" + self._prompted()
        if self._pty and key in ERASE:
            erased = b"\b \b" if line else b""
            del line[-1:]
            return erased
        if len(line) >= LONGEST_LINE or (self._pty and key < FIRST_PRINTABLE):
            return b""
        line.append(key)
        return bytes([key])

    async def _follow(self, pieces: AsyncIterator[bytes]) -> None:
        """Print a stream, without end; in a terminal until Ctrl-C or the end of the input."""
        printing = asyncio.create_task(self._print_all(pieces))
        typing = asyncio.create_task(self._interrupted())
        try:
            await asyncio.wait({printing, typing} if self._pty else {printing}, return_when=asyncio.FIRST_COMPLETED)
            if printing.done():
                await printing
        finally:
            for each in (printing, typing):
                each.cancel()
            await asyncio.gather(printing, typing, return_exceptions=True)
        await self._print((STDOUT, b"^C\n"))

    async def _interrupted(self) -> None:
        while (typed := await self._read()) and INTERRUPT not in typed:
            pass

    async def _print_all(self, pieces: AsyncIterator[bytes]) -> None:
        async for piece in pieces:
            await self._print((STDOUT, piece))

    def _prompted(self) -> bytes:
        return PROMPT % self._directory.encode("utf-8", "surrogateescape")

    async def _prompt(self) -> None:
        if self._pty:
            await self._print((STDOUT, self._prompted()))

    async def _echo(self, typed: bytes) -> None:
        if self._pty:
            await self._print((STDOUT, typed))

    async def _print(self, *pieces: tuple[int, bytes]) -> None:
        """A terminal has one output, and its lines end with a return."""
        if self._pty:
            pieces = ((STDOUT, b"".join(data for _, data in pieces).replace(b"\n", b"\r\n")),)
        if any(data for _, data in pieces):
            await self._write(pieces)
