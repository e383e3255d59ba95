"""Retries of what a worker stores and publishes, for as long as the store or the broker does not answer.

This is the worker's whole back-pressure. An actor that cannot store a screenshot or publish a trajectory repeats that
one call until it succeeds, so it takes no further task and holds at most one unpublished trajectory. (Those whose
actions are being judged wait beside the actors, a bounded number of them: action_judge.py.)
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
"""Between two attempts of one actor: a broker that comes back is noticed within this, and eight actors do not hammer
it."""
ACKNOWLEDGE_WAIT_S = 1.0
"""An acknowledgement takes milliseconds; an actor that waits this long says so and looks whether it should give up."""


class AbandonedError(DistrlError):
    """A stop ran out of time while an episode was under way; its task is uncommitted and is delivered again."""


class Retry:
    """Repeats calls that fail until they succeed, or until `give_up` is set, which raises AbandonedError.

    stalls: calls that did not succeed at once, since the start. stalled_now: those of them that still have not.
    """

    def __init__(self, give_up: threading.Event) -> None:
        self._give_up = give_up
        self._lock = threading.Lock()
        self.stalls = 0
        self.stalled_now = 0

    def call(
        self, what: str, attempt: Callable[[], R], on: type[DistrlError], but: tuple[type[DistrlError], ...] = ()
    ) -> R:
        """What `attempt` returns, made again for as long as it raises `on`; `but`, and whatever else, passes."""
        stalled = False

        def failed(error: DistrlError, wait_s: float) -> None:
            nonlocal stalled
            log.warning("%s failed and is tried again in %.2f s: %s", what, wait_s, error.what)
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
        """The result of a publication, however long the broker is away; a wait that is no moment counts as a stall."""
        stalled = False
        try:
            while not future.done():
                wait([future], ACKNOWLEDGE_WAIT_S)
                if future.done():
                    break
                if self._give_up.is_set():
                    raise AbandonedError(what, "was not acknowledged before the stop", "its task is delivered again")
                if not stalled:
                    log.warning("%s is not acknowledged yet; nothing new is started until it is", what)
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
