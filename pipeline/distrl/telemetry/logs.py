"""Logging for every role: one line per event, UTC time, to standard error."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

CLIENTS = ("distrl.broker", "distrl.kafka")
AGAIN_S = 10.0
"""Shortest interval of a repeated Kafka client warning: while a broker is unavailable, each client warns with every
attempt, some hundred times a minute, which would hide everything else."""

REMEMBERED = 1000
"""Most remembered warnings: some name a record each, and a role may run for weeks."""


class RateLimit(logging.Filter):
    """Rate-limits repeated warnings of Kafka clients: one per subject within AGAIN_S, whatever the reason.

    The subject of a message with several arguments is the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[tuple[str, str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING or not record.name.startswith(CLIENTS):
            return True
        of = str(record.args[0]) if isinstance(record.args, tuple) and len(record.args) > 1 else ""
        what = (record.name, str(record.msg), of)
        if abs(record.created - self._logged_at.get(what, -AGAIN_S)) < AGAIN_S:  # the system's clock may jump back
            return False
        if len(self._logged_at) >= REMEMBERED:
            self._logged_at.clear()
        self._logged_at[what] = record.created
        return True


class _Stderr(logging.StreamHandler[Any]):
    """Writes to the current sys.stderr: the live view replaces it, so that log lines appear above the view.

    A redirected log (`2>file`) is not affected.
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
    handler.addFilter(RateLimit())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("urllib3", "PIL", "matplotlib", "jgo", "transformers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
