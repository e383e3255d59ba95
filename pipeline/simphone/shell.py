"""The shell of a simulated phone: runs the commands of a line that a host sends.

A command's effect is complete when it returns: `input` and `am` first wait for the phone's latency, then act. Typed
text is only data and never parsed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from simphone.commands import COMMANDS
from simphone.commands.base import (
    FAILED,
    MOST_OUTPUT,
    NOT_FOUND,
    OK,
    SHELL,
    STDERR,
    STDOUT,
    USAGE,
    CommandError,
    CommandResult,
    Invocation,
    complained,
)
from simphone.commands.base import Command as Program
from simphone.commands.basics import BIN
from simphone.commands.gestures import TYPING
from simphone.faults import SLOW_S, Fault
from simphone.files import FileError, plain
from simphone.handset import Handset
from simphone.sh import Command, Redirection, ShellSyntaxError, parse

NOWHERE = frozenset({"/dev/null"})
NEED_SERVICES = frozenset({"am", "cmd", "dumpsys", "ime", "input", "monkey", "pm", "screencap", "settings", "svc",
                           "uiautomator", "wm"})  # fmt: skip
"""Commands that do not work while the phone is booting."""


class Shell:
    """The shell of one phone. programs: its commands by name."""

    def __init__(self, phone: Handset, programs: Mapping[str, Program] = COMMANDS) -> None:
        self.phone = phone
        self._programs = programs

    async def run(self, line: str, directory: str = "/", code: int = OK) -> CommandResult:
        """Run a line; its output is that of all its commands, its exit code that of the last one run.

        directory, code: the working directory, and the exit code of the line before this one.
        """
        try:
            commands = _entries(parse(line))
        except ShellSyntaxError as error:
            return complained(f"{SHELL}: syntax error: {error}\n", USAGE)
        pieces, size, afterwards = list[tuple[int, bytes]](), 0, list[Callable[[], None]]()
        follow, ended = None, False
        for pipeline in _pipelines(commands):
            first = pipeline[0]
            if (first.if_ok and code != OK) or (first.if_failed and code == OK):
                continue
            argv = first.expanded(code)
            if argv[0] == "exit":
                code, ended = _exit_code(argv[1:], code), True
                break
            result = await self._pipeline(pipeline, directory, code)
            pieces += [(output, data) for output, data in result.printed if data]
            size += sum(len(data) for _, data in result.printed)
            code = result.code
            afterwards += result.afterwards
            directory = result.directory or directory
            follow = result.follow
            if size > MOST_OUTPUT:
                return complained(f"{SHELL}: more than {MOST_OUTPUT} bytes to print\n")
            ended = argv[0] == "exec"
            if follow is not None or ended:
                break
        out, err = (b"".join(data for output, data in pieces if output == wanted) for wanted in (STDOUT, STDERR))
        return CommandResult(out, err, code, tuple(afterwards), follow, directory, ended, tuple(pieces))

    async def _pipeline(self, commands: Sequence[Command], directory: str, code: int) -> CommandResult:
        """Each command reads the output of the one before it; output and exit code are the last one's."""
        fed: bytes | None = None
        err, afterwards = b"", list[Callable[[], None]]()
        for command in commands:
            result = await self._run_one(command.expanded(code), directory, fed)
            if result.follow is not None and (command is not commands[-1] or command.redirections):
                result = complained(f"{command.argv[0]}: what is followed goes to the host alone; `logcat -d` ends\n")
            result = self._redirected(result, command.redirections)
            afterwards += result.afterwards
            if command is commands[-1]:
                break
            fed, err = result.stdout, err + result.stderr
        pieces = ((STDERR, err), *result.printed)
        return replace(result, stderr=err + result.stderr, afterwards=tuple(afterwards), pieces=pieces)

    def _redirected(self, result: CommandResult, redirections: Sequence[Redirection]) -> CommandResult:
        """The result without output redirected into files."""
        if not redirections:
            return result
        goes: dict[int, Redirection | int] = {1: 1, 2: 2}
        for each in redirections:
            goes[each.output] = each if each.target else goes[1]
        printed = {1: b"", 2: b""}
        written = {each: b"" for each in redirections if each.target}
        for output, data in ((1, result.stdout), (2, result.stderr)):
            where = goes[output]
            if isinstance(where, Redirection):
                written[where] += data
            else:
                printed[where] += data
        for each, data in written.items():
            try:
                self._write(each, data)
            except FileError as error:
                return complained(f"{SHELL}: can't create {each.target}: {error}\n")
        return replace(result, stdout=printed[1], stderr=printed[2])

    def _write(self, to: Redirection, data: bytes) -> None:
        if to.target in NOWHERE:
            return
        path = plain(to.target)
        before = self.phone.files.read(path) if to.append and self.phone.files.find(path) else b""
        self.phone.files.write(path, before + data)

    async def _run_one(self, argv: tuple[str, ...], directory: str, fed: bytes | None) -> CommandResult:
        name, *args = argv[1:] if argv[0] == "exec" and len(argv) > 1 else argv
        given, name = name, name.removeprefix(BIN)
        command = self._programs.get(name)
        if command is None:
            return complained(f"{SHELL}: {given}: inaccessible or not found\n", NOT_FOUND)
        if self.phone.faults.active(Fault.SLOW) and name != "simctl":
            await asyncio.sleep(SLOW_S)
        if self.phone.faults.active(Fault.BOOTING) and name in NEED_SERVICES:
            return complained(f"cmd: Can't find service: {name}\n")
        try:
            return await command(self.phone, Invocation(tuple(args), directory, fed, self._programs.keys()))
        except (CommandError, FileError) as error:
            return complained(f"{name}: {error}\n", FAILED)


def _pipelines(commands: Sequence[Command]) -> list[list[Command]]:
    found: list[list[Command]] = []
    for command in commands:
        if command.piped:
            found[-1].append(command)
        else:
            found.append([command])
    return found


def _exit_code(words: Sequence[str], last: int) -> int:
    return int(words[0][:9]) % 256 if words and words[0].isascii() and words[0].isdecimal() else last


def _entries(commands: Sequence[Command]) -> list[Command]:
    """Merges consecutive `input text` of one line, and `input keyboard text` alike: an entry replaces the field's
    content here, and text with a "%s" in it can only be typed in two pieces.
    """
    found: list[Command] = []
    for command in commands:
        typing = next((each for each in TYPING if command.argv[: len(each)] == each), None)
        words_alone = found and command == Command(command.argv, if_ok=True) and not found[-1].statuses
        if words_alone and typing and found[-1].argv[: len(typing)] == typing:
            found[-1] = replace(found[-1], argv=(*found[-1].argv, *command.argv[len(typing) :]))
        else:
            found.append(command)
    return found
