from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from distrl.retry import StoppedError, retry
from tenacity import wait_fixed

FOR_EVER_S = 1_000.0


class AwayError(Exception):
    pass


class RefusedError(AwayError):
    pass


def raising(*errors: Exception) -> Callable[[], str]:
    left = list(errors)

    def attempt() -> str:
        if left:
            raise left.pop(0)
        return "done"

    return attempt


def test_an_attempt_is_made_again_until_it_succeeds_and_each_failure_is_reported_with_its_pause() -> None:
    told: list[tuple[str, float]] = []
    attempt = raising(AwayError("one"), AwayError("two"))
    pauses = wait_fixed(0.001)
    assert retry(attempt, threading.Event(), AwayError, pauses, lambda e, s: told.append((str(e), s))) == "done"
    assert told == [("one", 0.001), ("two", 0.001)]


@pytest.mark.parametrize("error", [RefusedError(), ValueError()])
def test_what_is_not_waited_out_passes_at_once(error: Exception) -> None:
    told: list[Exception] = []
    with pytest.raises(type(error)):
        retry(raising(error), threading.Event(), AwayError, wait_fixed(0), lambda e, s: told.append(e), (RefusedError,))
    assert told == []


def test_a_stop_ends_the_pause_and_no_further_attempt_is_made() -> None:
    stop, paused, attempts = threading.Event(), threading.Event(), list[int]()

    def attempt() -> None:
        attempts.append(1)
        raise AwayError

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(retry, attempt, stop, AwayError, wait_fixed(FOR_EVER_S), lambda e, s: paused.set())
        assert paused.wait(10)
        stop.set()
        with pytest.raises(StoppedError):
            waiting.result(10)
    assert len(attempts) == 1


def test_a_stop_before_the_first_attempt_lets_it_succeed() -> None:
    stop = threading.Event()
    stop.set()
    assert retry(raising(), stop, AwayError, wait_fixed(0), lambda e, s: None) == "done"
    with pytest.raises(StoppedError):
        retry(raising(AwayError()), stop, AwayError, wait_fixed(FOR_EVER_S), lambda e, s: None)
