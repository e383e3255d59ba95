"""The phone's log for `logcat`: the last entries, each with the phone's own time.

That time counts events since the phone was started, one second each, so that equal inputs give equal logs.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

MOST_ENTRIES: Final = 500
LONGEST_MESSAGE: Final = 400
IDLE_S: Final = 1.0
PRIORITIES: Final = "VDIWEFS"
"""From verbose to fatal; S lets nothing through."""
SWITCHED_ON: Final = datetime(2024, 1, 1, tzinfo=UTC)
SYSTEM_PID: Final = 612
HEADING: Final = "--------- beginning of main\n"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """number: counts all entries ever, from 0. at: seconds since the phone was started."""

    number: int
    at: int
    priority: str
    tag: str
    message: str

    @property
    def time(self) -> str:
        return (SWITCHED_ON + timedelta(seconds=self.at)).strftime("%m-%d %H:%M:%S.000")


FORMATS: Final[dict[str, Callable[[LogEntry], str]]] = {
    "threadtime": lambda e: f"{e.time} {SYSTEM_PID:5d} {SYSTEM_PID:5d} {e.priority} {e.tag:8}: {e.message}\n",
    "time": lambda e: f"{e.time} {e.priority}/{e.tag:8}({SYSTEM_PID:5d}): {e.message}\n",
    "brief": lambda e: f"{e.priority}/{e.tag:8}({SYSTEM_PID:5d}): {e.message}\n",
    "tag": lambda e: f"{e.priority}/{e.tag:8}: {e.message}\n",
    "raw": lambda e: f"{e.message}\n",
}
"""As `logcat -v` names and prints them."""


class Logbook:
    """Owned by the event loop that serves the phone. Only the newest entries are kept; a late reader misses some."""

    def __init__(self) -> None:
        self.seconds = 0
        self._entries: deque[LogEntry] = deque(maxlen=MOST_ENTRIES)
        self._next = 0
        self._grown = asyncio.Event()

    def now(self) -> int:
        """The phone's time, seconds since 1970."""
        return int(SWITCHED_ON.timestamp()) + self.seconds

    def tick(self) -> None:
        """An event has happened."""
        self.seconds += 1

    def note(self, tag: str, message: str, priority: str = "I") -> None:
        """Always one line, as messages contain untrusted text."""
        line = message[:LONGEST_MESSAGE]
        if not line.isprintable():
            line = "".join(char if char.isprintable() else "." for char in line)
        self._entries.append(LogEntry(self._next, self.seconds, priority, tag, line))
        self._next += 1
        self._grown.set()
        self._grown = asyncio.Event()

    def clear(self) -> None:
        self._entries.clear()

    def entries(self, first: int = 0) -> list[LogEntry]:
        """Those kept, from number `first` on."""
        kept = first - self._entries[0].number if self._entries else 0
        return list(itertools.islice(self._entries, max(0, kept), None))

    async def follow(self) -> AsyncIterator[LogEntry]:
        """The stored entries and then new ones, for ever.

        A client that follows the log may check only at the next line whether to stop. So after IDLE_S without an entry
        an idle one is sent, which is not stored; a real phone's log is never silent either.
        """
        first = 0
        while True:
            grown = self._grown
            for entry in self.entries(first):
                first = entry.number + 1
                yield entry
            try:
                await asyncio.wait_for(grown.wait(), IDLE_S)
            except TimeoutError:
                yield LogEntry(self._next, self.seconds, "V", "Simulation", "idle")
