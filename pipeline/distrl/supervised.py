"""Threads whose end is noticed: what ends one unexpectedly reaches its owner, so that a role ends with the reason."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LOG = logging.getLogger(__name__)


class SupervisedThread:
    """A daemon thread that starts at once. `check` raises in its owner what ended `target`.

    on_failure: called with that in the failing thread, before the thread ends, for those who wait for its work.
    """

    def __init__(
        self, target: Callable[[], None], name: str, on_failure: Callable[[Exception], None] = lambda error: None
    ) -> None:
        self._target = target
        self._on_failure = on_failure
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the thread; nothing where it runs or has returned."""
        if self._failure is not None:
            raise self._failure

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._target()
        except Exception as error:
            LOG.exception("thread %s has ended", self._thread.name)
            self._failure = error
            self._on_failure(error)
