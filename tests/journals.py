"""What a test finds in a run's journal."""

from __future__ import annotations

from distrl.broker.journal import journalled
from distrl.config import Config
from distrl.types import Update
from waiting import until


def updates_of(config: Config, count: int) -> list[Update]:
    """Those that count, once there are `count` or more: a line that was appended last is visible some milliseconds
    later, and later on a busy machine."""

    def enough() -> list[Update]:
        found = journalled(config)
        return found if len(found) >= count else []

    return until(enough, lambda: f"{count} updates; there are {journalled(config)}")
