"""The shell of a simulated phone: the line that a host sends, to the commands that it names.

A command's effect is complete when it returns: `input` and `am` first take the phone's time, then act. Text is data to
the last byte; nothing typed is ever parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from distrl.phone.commands import COMMANDS
from distrl.phone.commands.base import (
    FAILED,
    MOST_OUTPUT,
    NOT_FOUND,
    OK,
    SHELL,
    USAGE,
    Call,
    RefusedError,
    Result,
    complained,
)
from distrl.phone.faults import SLOW_S, Fault
from distrl.phone.files import FileError
from distrl.phone.handset import Handset
from distrl.phone.sh import Command, ShellSyntaxError, parse


class Shell:
    """The shell of one phone."""

    def __init__(self, phone: Handset) -> None:
        self.phone = phone

    async def run(self, line: str, directory: str = "/") -> Result:
        """Run a line; its output is that of all its commands, its exit code that of the last one run."""
        try:
            commands = _entries(parse(line))
        except ShellSyntaxError as error:
            return complained(f"{SHELL}: syntax error: {error}\n", USAGE)
        out, err, code, afterwards = bytearray(), bytearray(), OK, list[Callable[[], None]]()
        follow = None
        for command in commands:
            if command.if_ok and code != OK:
                continue
            argv = command.expanded(code)
            if argv[0] == "exit":
                code = _exit_code(argv[1:], code)
                break
            result = await self._run_one(argv, directory)
            out += result.stdout
            err += result.stderr
            code = result.code
            afterwards += result.afterwards
            directory = result.directory or directory
            follow = result.follow
            if len(out) + len(err) > MOST_OUTPUT:
                return complained(f"{SHELL}: more than {MOST_OUTPUT} bytes to print\n")
            if follow is not None or argv[0] == "exec":
                break
        return Result(bytes(out), bytes(err), code, tuple(afterwards), follow, directory)

    async def _run_one(self, argv: tuple[str, ...], directory: str) -> Result:
        name, *args = argv[1:] if argv[0] == "exec" and len(argv) > 1 else argv
        command = COMMANDS.get(name)
        if command is None:
            return complained(f"{SHELL}: {name}: inaccessible or not found\n", NOT_FOUND)
        if self.phone.faults.active(Fault.SLOW) and name != "simctl":
            await asyncio.sleep(SLOW_S)
        try:
            return await command(self.phone, Call(tuple(args), directory))
        except (RefusedError, FileError) as error:
            return complained(f"{name}: {error}\n", FAILED)


def _exit_code(words: Sequence[str], last: int) -> int:
    return int(words[0][:9]) % 256 if words and words[0].isascii() and words[0].isdecimal() else last


def _entries(commands: Sequence[Command]) -> list[Command]:
    """`input text` after `input text` on one line is one entry: here an entry replaces what the field held, and text
    with a "%s" in it can only be typed in two pieces.
    """
    found: list[Command] = []
    for command in commands:
        typed, before = command.argv[:2] == ("input", "text"), found[-1].argv[:2] if found else ()
        whole = typed and before == ("input", "text") and not command.statuses and not found[-1].statuses
        if whole and command.if_ok:
            found[-1] = replace(found[-1], argv=(*found[-1].argv, *command.argv[2:]))
        else:
            found.append(command)
    return found
