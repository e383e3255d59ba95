"""What several phones finish in any order leaves in a given one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class InOrder(Generic[T]):
    """Gives each item on once all that are named before it have been given or left out. Safe from several threads.

    order: the names, each once. give: called in the thread of whoever brought what was waited for, one item at a time;
    what it raises reaches that one, and nothing later is given then.
    """

    def __init__(self, order: Iterable[str], give: Callable[[T], None]) -> None:
        self._left = deque(order)
        self._give = give
        self._ready: dict[str, T | None] = {}
        self._lock = threading.Lock()

    def put(self, name: str, item: T) -> None:
        """`item` is there. It may be held; so may the caller be, while another thread gives."""
        self._arrived(name, item)

    def leave_out(self, name: str) -> None:
        """Nothing will come under `name`: what is after it waits no longer for it."""
        self._arrived(name, None)

    def _arrived(self, name: str, item: T | None) -> None:
        with self._lock:
            self._ready[name] = item
            while self._left and self._left[0] in self._ready:
                following = self._ready[self._left[0]]
                if following is not None:
                    self._give(following)
                del self._ready[self._left.popleft()]
