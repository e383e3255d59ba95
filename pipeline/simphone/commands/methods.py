"""`ime`: which keyboards the phone has, and which one is selected."""

from __future__ import annotations

from simphone.commands.base import CommandError, CommandResult, Invocation, said
from simphone.handset import Handset


async def ime(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case ["list", "-s"]:
            return said("".join(f"{name}\n" for name in phone.keyboards.enabled))
        case ["set", name]:
            try:
                phone.keyboards.select(name)
            except ValueError as error:
                raise CommandError(str(error)) from error
            return said(f"Input method {name} selected for user #0\n")
    raise CommandError("usage: ime list -s | set ID")


COMMANDS = {"ime": ime}
