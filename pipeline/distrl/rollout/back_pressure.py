"""Retries storing and publishing for as long as the store or the broker fails.

This is all the back-pressure that a worker has: an actor that cannot store a screenshot or publish a trajectory repeats
the call until it succeeds, so it takes no further task and holds at most one unpublished trajectory. (Apart from the
actors, a bounded number of trajectories wait for the action judge: worker/action_judge.py.)
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from tenacity import wait_exponential

from distrl.errors import DistrlError
from distrl.retry import StoppedError, retry

log = logging.getLogger(__name__)
R = TypeVar("R")

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 10.0
"""Longest pause between two attempts of an actor: short enough to notice a broker that is back, long enough that eight
actors do not hammer it."""
ACKNOWLEDGE_WAIT_S = 1.0
"""An acknowledgement takes milliseconds; after this long an actor logs it and checks `give_up`."""


class AbandonedError(DistrlError):
    """A stop did not wait any longer for a running episode. Its task is uncommitted and will be delivered again."""


class Retry:
    """Repeats failing calls until they succeed; raises AbandonedError once `give_up` is set. Thread-safe."""

    def __init__(self, give_up: threading.Event) -> None:
        self._give_up = give_up
        self._lock = threading.Lock()
        self.stalls = 0
        """How many calls since the start did not succeed at once."""
        self.stalled_now = 0
        """How many of them still have not."""

    def call(
        self, what: str, attempt: Callable[[], R], on: type[DistrlError], but: tuple[type[DistrlError], ...] = ()
    ) -> R:
        """Retries `attempt` while it raises `on`, and returns its result. `but` and other errors pass through."""
        stalled = False

        def failed(error: DistrlError, wait_s: float) -> None:
            nonlocal stalled
            log.warning("%s failed; next attempt in %.2f s: %s", what, wait_s, error.what)
            if not stalled:
                stalled = True
                self._count(1)

        try:
            pauses = wait_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S)
            return retry(attempt, self._give_up, on, pauses, failed, but)
        except StoppedError:
            raise AbandonedError(
                what, "was not done before the stop", "its task is delivered to another worker"
            ) from None
        finally:
            if stalled:
                self._count(-1)

    def acknowledged(self, what: str, future: Future[R]) -> R:
        """Waits for the acknowledgement, however long it takes; beyond ACKNOWLEDGE_WAIT_S it counts as a stall."""
        stalled = False
        try:
            while not future.done():
                wait([future], ACKNOWLEDGE_WAIT_S)
                if future.done():
                    break
                if self._give_up.is_set():
                    raise AbandonedError(what, "was not acknowledged before the stop", "its task is delivered again")
                if not stalled:
                    log.warning("%s is not acknowledged yet; no new task is started until it is", what)
                    stalled = True
                    self._count(1)
            return future.result()
        finally:
            if stalled:
                self._count(-1)

    def _count(self, change: int) -> None:
        with self._lock:
            self.stalled_now += change
            self.stalls += max(0, change)
