"""`simctl`: state, reset and faults, which only a simulated phone has."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

from simphone.commands.base import CommandError, CommandResult, Invocation
from simphone.faults import UNREACHABLE, Fault
from simphone.handset import Handset


async def simctl(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case ["state"]:
            return _json(phone.machine.state())
        case ["reset", *options]:
            return _json(_reset(phone, options))
        case ["fault", "none"]:
            phone.faults.clear()
            return _json({"faults": []})
        case ["fault", name, *seconds] if len(seconds) <= 1:
            return _fault(phone, name, seconds[0] if seconds else None)
    raise CommandError("usage: simctl state | reset --seed N --setup JSON | fault NAME [SECONDS] | fault none")


def _reset(phone: Handset, options: Sequence[str]) -> Mapping[str, Any]:
    parser = _Options(add_help=False, allow_abbrev=False)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--setup", default="{}")
    given = parser.parse_args(list(options))
    try:
        setup = json.loads(given.setup)
        if not isinstance(setup, dict):
            raise CommandError("--setup is not a JSON object")
        phone.reset(given.seed, setup)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise CommandError(f"this cannot be set up: {error}") from error
    return {"seed": given.seed}


def _fault(phone: Handset, name: str, seconds: str | None) -> CommandResult:
    try:
        fault = Fault(name)
        duration = math.inf if seconds is None else float(seconds)
    except ValueError as error:
        raise CommandError(f"{error}; faults are {', '.join(Fault)}, for a number of seconds") from error
    if math.isnan(duration) or duration <= 0 or (fault in UNREACHABLE and math.isinf(duration)):
        raise CommandError(f"{fault} needs a positive number of seconds")
    done = _json({"faults": [fault]})
    return CommandResult(done.stdout, afterwards=(partial(phone.faults.set, fault, duration),))


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise CommandError(message)


def _json(value: Mapping[str, Any]) -> CommandResult:
    return CommandResult(json.dumps(value, separators=(",", ":"), sort_keys=True).encode() + b"\n")


COMMANDS = {"simctl": simctl}
