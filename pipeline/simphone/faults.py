"""Faults of a simulated phone, switched on and off while it runs.

silent: the connection stays open and no request is answered, as with a frozen system server.
gone: connections close and the port refuses new ones, as with a phone that loses its network or restarts.
truncated: a screenshot is cut in half, and the command still reports success.
slow: every command takes SLOW_S longer.
asleep: the screen is off. A screenshot is black, no gesture has an effect; the key WAKEUP ends it, and so does a
reset.
locked: the lock screen is in front and wants a PIN that nobody types. No gesture or key leads away, nor does a reset.
stuck: the first app in front other than the home screen hangs. It repaints for ever and ignores gestures except HOME,
also when it is opened again, until it is stopped. `input` waits for it, as on Android.
booting: the shell answers but the system's services are not up yet, as after a restart (`gone`, then this).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum

SLOW_S = 2.0


class Fault(StrEnum):
    SILENT = "silent"
    GONE = "gone"
    TRUNCATED = "truncated"
    SLOW = "slow"
    ASLEEP = "asleep"
    LOCKED = "locked"
    STUCK = "stuck"
    BOOTING = "booting"


UNREACHABLE = frozenset({Fault.SILENT, Fault.GONE})
"""A phone with one of these cannot receive the command that would end it, so it must be set with a duration."""


class Faults:
    """The faults of one phone, each with the time at which it ends.

    Made in the event loop that serves the phone; what changes them may be called from any thread. clock: monotonic
    seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[Fault, float] = {}
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()

    def set(self, fault: Fault, seconds: float = math.inf) -> None:
        """Begin a fault, for seconds from now or until it is cleared."""
        self._until[fault] = self._clock() + seconds
        self._loop.call_soon_threadsafe(self._wake)

    def lengthen(self, fault: Fault, seconds: float) -> None:
        """Have a fault last for seconds from now, unless it lasts for longer anyway."""
        if self._remaining(fault) < seconds:
            self.set(fault, seconds)

    def end(self, fault: Fault) -> None:
        """End one fault now, whatever the clock says, and leave the others."""
        self._until.pop(fault, None)
        self._loop.call_soon_threadsafe(self._wake)

    def clear(self) -> None:
        self._until.clear()
        self._loop.call_soon_threadsafe(self._wake)

    def active(self, fault: Fault) -> bool:
        return self._remaining(fault) > 0.0

    async def until(self, fault: Fault, active: bool) -> None:
        """Wait until the fault is active, or until it is not."""
        while self.active(fault) is not active:
            changed, remaining = self._changed, self._remaining(fault)
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), remaining if 0 < remaining < math.inf else None)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _remaining(self, fault: Fault) -> float:
        return max(0.0, self._until.get(fault, -math.inf) - self._clock())
