from __future__ import annotations

import gc
import threading
import weakref

import pytest
from distrl.supervised import StoppableThread, SupervisedThread, SupervisedThreads


def test_what_ends_a_thread_reaches_its_owner_and_those_who_wait() -> None:
    errors: list[BaseException] = []
    thread = SupervisedThread(lambda: [][0], "a-test", errors.append)
    thread.join(10)
    assert [type(error) for error in errors] == [IndexError]
    with pytest.raises(IndexError):
        thread.check()


def test_a_panic_that_is_no_exception_reaches_them_too() -> None:
    """As pyo3's, which libraries in Rust raise."""

    class Panic(BaseException):
        pass

    def panics() -> None:
        raise Panic

    errors: list[BaseException] = []
    thread = SupervisedThread(panics, "a-test", errors.append)
    thread.join(10)
    assert [type(error) for error in errors] == [Panic]
    with pytest.raises(Panic):
        thread.check()


def test_an_owner_whose_thread_has_ended_is_freed_without_a_collection() -> None:
    class Owner:
        def __init__(self) -> None:
            self.thread = SupervisedThread(self.work, "a-test", self.failed)

        def work(self) -> None: ...

        def failed(self, error: BaseException) -> None: ...

    gc.disable()
    try:
        owner = Owner()
        owner.thread.join(10)
        freed = weakref.ref(owner)
        del owner
        assert freed() is None
    finally:
        gc.enable()


def test_a_thread_that_returns_has_not_failed() -> None:
    done = threading.Event()
    thread = SupervisedThread(done.set, "a-test")
    thread.join(10)
    assert done.is_set()
    thread.check()
    assert thread.failure is None
    assert not thread.running


def test_a_thread_is_asked_to_stop_and_waited_for() -> None:
    ended: list[bool] = []
    thread = StoppableThread(lambda stop: ended.append(stop.wait(30)), "a-test")
    assert thread.running
    thread.stop()
    assert ended == [True]
    assert not thread.running


def test_what_a_stopped_thread_waits_for_is_released_once_it_knows() -> None:
    held, seen = threading.Event(), []

    def wait(stop: threading.Event) -> None:
        held.wait(30)
        seen.append(stop.is_set())

    StoppableThread(wait, "a-test").stop(held.set)
    assert seen == [True]


def test_several_threads_share_a_deadline_and_any_of_their_failures_is_raised() -> None:
    threads, go_on = SupervisedThreads(), threading.Event()
    assert not threads.running
    threads.start(go_on.wait, "a-test-1")
    assert not threads.join(0.01)
    threads.check()
    threads.start(lambda: [][0], "a-test-2")
    go_on.set()
    assert threads.join(10)
    with pytest.raises(IndexError):
        threads.check()
