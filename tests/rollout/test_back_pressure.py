from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from distrl.broker.producer import RecordTooLargeError
from distrl.errors import BrokerError, StoreError
from distrl.rollout import back_pressure as module
from distrl.rollout.back_pressure import AbandonedError, Retry


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(module, "ACKNOWLEDGE_WAIT_S", 0.01)


def failing(times: int, error: Exception) -> Callable[[], str]:
    tries = itertools.count()

    def call() -> str:
        if next(tries) < times:
            raise error
        return "done"

    return call


def test_a_call_is_repeated_until_it_succeeds_and_counts_as_one_stall() -> None:
    subject = Retry(threading.Event())
    assert subject.call("it", failing(3, StoreError("s", "away", "start it")), StoreError) == "done"
    assert (subject.stalls, subject.stalled_now) == (1, 0)
    assert subject.call("it", failing(0, ValueError()), StoreError) == "done"
    assert subject.stalls == 1


def test_other_errors_and_the_named_exception_pass() -> None:
    subject = Retry(threading.Event())
    with pytest.raises(ValueError, match="bug"):
        subject.call("it", failing(1, ValueError("bug")), StoreError)
    large = RecordTooLargeError("topic", "too large", "shrink it")
    with pytest.raises(RecordTooLargeError):
        subject.call("it", failing(1, large), BrokerError, but=(RecordTooLargeError,))


def test_a_stop_that_runs_out_of_time_ends_the_wait() -> None:
    give_up = threading.Event()
    subject = Retry(give_up)
    with ThreadPoolExecutor(2) as pool:
        repeating = pool.submit(subject.call, "it", failing(10**9, StoreError("s", "away", "start it")), StoreError)
        waiting = pool.submit(subject.acknowledged, "it", Future())
        give_up.set()
        for future in (repeating, waiting):
            with pytest.raises(AbandonedError):
                future.result(30)
    assert subject.stalled_now == 0


def test_an_acknowledgement_is_waited_for() -> None:
    subject, future = Retry(threading.Event()), Future[int]()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(subject.acknowledged, "it", future)
        future.set_result(7)
        assert waiting.result(10) == 7
