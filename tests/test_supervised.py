from __future__ import annotations

import threading

import pytest
from distrl.supervised import SupervisedThread


def test_what_ends_a_thread_reaches_its_owner_and_those_who_wait() -> None:
    told: list[Exception] = []
    thread = SupervisedThread(lambda: [][0], "a-test", told.append)
    thread.join(10)
    assert [type(error) for error in told] == [IndexError]
    with pytest.raises(IndexError):
        thread.check()


def test_a_thread_that_returns_has_not_failed() -> None:
    done = threading.Event()
    thread = SupervisedThread(done.set, "a-test")
    thread.join(10)
    assert done.is_set()
    thread.check()
