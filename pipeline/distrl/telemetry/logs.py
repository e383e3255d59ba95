"""Logging for every role: one line an event, UTC time, to standard error."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

CLIENTS = ("distrl.broker", "distrl.kafka")
AGAIN_S = 10.0
"""How seldom a warning of a Kafka client is repeated: while a broker is away, each client has one with every try, some
hundred in a minute, between which what matters would be lost."""

REMEMBERED = 1000
"""Warnings that are remembered: some name a record each, and a role may run for weeks."""


class Seldom(logging.Filter):
    """Leaves out a client's warning that was told less than AGAIN_S ago, of the same thing for another reason too.

    Of a message with several arguments, the first says of what it is told.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[tuple[str, str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or not record.name.startswith(CLIENTS):
            return True
        of = str(record.args[0]) if isinstance(record.args, tuple) and len(record.args) > 1 else ""
        what = (record.name, str(record.msg), of)
        if abs(record.created - self._told.get(what, -AGAIN_S)) < AGAIN_S:  # the system's clock may go back
            return False
        if len(self._told) >= REMEMBERED:
            self._told.clear()
        self._told[what] = record.created
        return True


class _Stderr(logging.StreamHandler[Any]):
    """Writes to what sys.stderr is at the time: a live view puts its own there, so that a line goes above the picture.

    A log that was piped away (`2>file`) is not changed by that.
    """

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure(role: str, verbose: bool = False) -> None:
    """Send the process's log to standard error. Call once, before any thread starts."""
    formatter = logging.Formatter(f"%(asctime)s {role} %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = _Stderr()
    handler.setFormatter(formatter)
    handler.addFilter(Seldom())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("urllib3", "PIL", "matplotlib", "jgo", "transformers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
