"""Time as an argument: who stamps or measures is handed a Clock, and everyone's stamps are made alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """now: seconds since the epoch, for stamps; ticks: monotonic seconds, for durations."""

    now: Callable[[], float] = time.time
    ticks: Callable[[], float] = time.perf_counter

    def now_ms(self) -> int:
        """ms since the epoch, as every record carries it."""
        return int(self.now() * 1000)


SYSTEM_CLOCK = Clock()
