"""Logging for every role: one line an event, UTC time, to standard error."""

from __future__ import annotations

import logging
import sys
import time


def configure(role: str, verbose: bool = False) -> None:
    """Send the process's log to standard error. Call once, before any thread starts."""
    formatter = logging.Formatter(f"%(asctime)s {role} %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("urllib3", "PIL", "matplotlib", "jgo", "transformers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
