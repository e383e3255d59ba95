"""Retries that end as soon as an event is set.

tenacity's own `sleep_using_event` wakes at the event but then makes one more attempt, for which a stop would wait: it
may take many seconds where the server is away. Here the event ends the retries within the pause.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception
from tenacity.wait import wait_base

R = TypeVar("R")
E = TypeVar("E", bound=Exception)


class StoppedError(Exception):
    """The event was set before an attempt succeeded."""


def retry(
    attempt: Callable[[], R],
    stop: threading.Event,
    on: type[E] | tuple[type[E], ...],
    wait: wait_base,
    failed: Callable[[E, float], object],
    but: tuple[type[Exception], ...] = (),
) -> R:
    """Retries `attempt` while it raises `on`, and returns its result. `but` and other errors pass through.

    failed: called before each pause, with the error and the pause in seconds. Raises StoppedError at once where `stop`
    is set before or in a pause; the first attempt is always made.
    """

    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        assert isinstance(error, on)
        failed(error, state.upcoming_sleep)

    def sleep(seconds: float) -> None:
        if stop.wait(seconds):
            raise StoppedError

    again = retry_if_exception(lambda error: isinstance(error, on) and not isinstance(error, but))
    return Retrying(sleep=sleep, wait=wait, retry=again, before_sleep=before_sleep)(attempt)
