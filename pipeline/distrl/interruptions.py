"""Signals that raise KeyboardInterrupt, as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

INTERRUPTIONS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptions_deferred() -> Iterator[None]:
    """Where a signal raises KeyboardInterrupt, it does so after the block, which must be short. In another thread than
    the main one none does, and nothing is changed."""
    came: list[int] = []
    deferred: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():
        deferred = [number for number in INTERRUPTIONS if signal.getsignal(number) is signal.default_int_handler]
    try:
        for number in deferred:
            signal.signal(number, lambda number, _: came.append(number))
        yield
    finally:
        for number in deferred:
            signal.signal(number, signal.default_int_handler)
        for interruption in came:
            signal.raise_signal(interruption)
