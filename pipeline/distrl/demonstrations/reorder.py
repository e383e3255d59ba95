"""Passes items on in a given order, whichever order several threads bring them in."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class InOrder(Generic[T]):
    """Passes each item on once all items named before it were passed on. Thread-safe.

    order: the names, each once. give: called with one item at a time, in the thread of the caller that brought the
    awaited item; what it raises reaches that caller, and no later item is passed on then.
    """

    def __init__(self, order: Iterable[str], give: Callable[[T], None]) -> None:
        self._left = deque(order)
        self._give = give
        self._ready: dict[str, T] = {}
        self._lock = threading.Lock()

    def put(self, name: str, item: T) -> None:
        """Bring an item. It may be held back; the caller may block while another thread passes items on."""
        with self._lock:
            self._ready[name] = item
            while self._left and self._left[0] in self._ready:
                self._give(self._ready[self._left[0]])
                del self._ready[self._left.popleft()]
