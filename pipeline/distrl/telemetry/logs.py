"""Logging for every role: one line an event, UTC time, to standard error."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any


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
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("urllib3", "PIL", "matplotlib", "jgo", "transformers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
