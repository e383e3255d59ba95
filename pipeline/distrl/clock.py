"""Time as an argument: code that needs the time is given a Clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clock:
    """The time of day, and a monotonic clock."""

    now: Callable[[], float] = time.time
    """Seconds since the epoch, for timestamps."""
    ticks: Callable[[], float] = time.perf_counter
    """Monotonic seconds, for durations."""

    def now_ms(self) -> int:
        """ms since the epoch, the unit of times in records."""
        return int(self.now() * 1000)


SYSTEM_CLOCK = Clock()
