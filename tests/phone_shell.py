"""A phone without a port: lines to what they print."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from simphone.adbd import properties
from simphone.commands.base import CommandResult
from simphone.faults import Faults
from simphone.handset import Handset
from simphone.machine import PhoneMachine
from simphone.shell import Shell


def with_shell(play: Callable[[Shell], Awaitable[None]], seed: int = 1) -> None:
    async def go() -> None:
        machine = PhoneMachine(seed, popup_probability=0.0)
        await play(Shell(Handset(machine, Faults(time.monotonic), lambda: 0.0, properties("sim0"))))

    asyncio.run(go())


def runs(*lines: str) -> list[CommandResult]:
    """What one new phone answers to these lines, one after the other."""
    results: list[CommandResult] = []

    async def play(shell: Shell) -> None:
        for line in lines:
            results.append(await shell.run(line))  # noqa: PERF401

    with_shell(play)
    return results


def last(*lines: str) -> str:
    """What the last line prints; every one of them succeeds."""
    results = runs(*lines)
    assert [(result.code, result.stderr) for result in results] == [(0, b"")] * len(lines)
    return results[-1].stdout.decode()
