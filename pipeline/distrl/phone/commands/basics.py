"""What a shell brings along: words, exit codes, who one is. What needs the shell itself (`cd`, `exec`) is there."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Final

from distrl.phone.commands.base import FAILED, Call, RefusedError, Result, said
from distrl.phone.handset import Handset

LONGEST_SLEEP_S: Final = 60.0


async def echo(phone: Handset, call: Call) -> Result:
    words, end = (call.args[1:], "") if call.args[:1] == ("-n",) else (call.args, "\n")
    return said(" ".join(words) + end)


async def true(phone: Handset, call: Call) -> Result:
    return Result()


async def false(phone: Handset, call: Call) -> Result:
    return Result(code=FAILED)


async def sleep(phone: Handset, call: Call) -> Result:
    try:
        (word,) = call.args
        seconds = float(word)
    except ValueError as error:
        raise RefusedError("usage: sleep SECONDS") from error
    if not 0 <= seconds <= LONGEST_SLEEP_S:
        raise RefusedError(f"between 0 and {LONGEST_SLEEP_S:g} seconds, not {word}")
    await asyncio.sleep(seconds)
    return Result()


async def date(phone: Handset, call: Call) -> Result:
    """The phone's own time, which its events move on."""
    now = phone.log.now()
    match call.args:
        case ():
            return said(datetime.fromtimestamp(now, UTC).strftime("%a %b %e %H:%M:%S UTC %Y\n"))
        case ("+%s",):
            return said(f"{now}\n")
    raise RefusedError("usage: date [+%s]")


async def identity(phone: Handset, call: Call) -> Result:
    return said("uid=2000(shell) gid=2000(shell) groups=2000(shell)\n")


async def whoami(phone: Handset, call: Call) -> Result:
    return said("shell\n")


COMMANDS = {
    ":": true,
    "date": date,
    "echo": echo,
    "export": true,  # nothing is expanded, so nothing has to be remembered; adb's own logcat begins with one
    "false": false,
    "id": identity,
    "sleep": sleep,
    "true": true,
    "whoami": whoami,
}
