"""Built-in commands: echo, exit codes, user ids. Those that need the shell itself (`cd`, `exec`) are in shell.py."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

from simphone.commands.base import FAILED, OK, CommandError, CommandResult, Invocation, said
from simphone.handset import Handset

LONGEST_SLEEP_S: Final = 60.0
BIN: Final = "/system/bin/"
BUILT_IN: Final = frozenset({":", "cd", "command", "exec", "exit", "export"})
"""Shell built-ins: there is no file with these names."""


async def echo(phone: Handset, call: Invocation) -> CommandResult:
    words, end = (call.args[1:], "") if call.args[:1] == ("-n",) else (call.args, "\n")
    return said(" ".join(words) + end)


async def true(phone: Handset, call: Invocation) -> CommandResult:
    return CommandResult()


async def false(phone: Handset, call: Invocation) -> CommandResult:
    return CommandResult(code=FAILED)


async def sleep(phone: Handset, call: Invocation) -> CommandResult:
    try:
        (word,) = call.args
        seconds = float(word)
    except ValueError as error:
        raise CommandError("usage: sleep SECONDS") from error
    if not 0 <= seconds <= LONGEST_SLEEP_S:
        raise CommandError(f"between 0 and {LONGEST_SLEEP_S:g} seconds, not {word}")
    await asyncio.sleep(seconds)
    return CommandResult()


async def date(phone: Handset, call: Invocation) -> CommandResult:
    """The phone's own time, which advances with its events."""
    now = phone.log.now()
    match call.args:
        case ():
            return said(datetime.fromtimestamp(now, UTC).strftime("%a %b %e %H:%M:%S UTC %Y\n"))
        case ("+%s",):
            return said(f"{now}\n")
    raise CommandError("usage: date [+%s]")


async def which(phone: Handset, call: Invocation) -> CommandResult:
    """Prints the path of each program; nothing for a missing one, and exits with 1."""
    if not call.args:
        raise CommandError("Needs 1 argument")
    names = [word.removeprefix(BIN) for word in call.args]
    found = [name for name in names if name in call.programs and name not in BUILT_IN]
    return said("".join(f"{BIN}{name}\n" for name in found), OK if len(found) == len(names) else FAILED)


async def command(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case ["-v", name] if name in BUILT_IN:
            return said(f"{name}\n")
        case ["-v", name]:
            return await which(phone, Invocation((name,), programs=call.programs))
    raise CommandError("usage: command -v NAME")


async def identity(phone: Handset, call: Invocation) -> CommandResult:
    return said("uid=2000(shell) gid=2000(shell) groups=2000(shell)\n")


async def whoami(phone: Handset, call: Invocation) -> CommandResult:
    return said("shell\n")


COMMANDS = {
    ":": true,
    "command": command,
    "date": date,
    "echo": echo,
    "export": true,  # ignored, as variables are never expanded; `adb logcat` begins with one
    "false": false,
    "id": identity,
    "sleep": sleep,
    "true": true,
    "which": which,
    "whoami": whoami,
}
