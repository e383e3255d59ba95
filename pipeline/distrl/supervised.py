"""Threads whose failure reaches their owner, so that a role ends with the reason."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)


class SupervisedThread:
    """A daemon thread that starts at once. The owner calls `check`, which raises what ended `target`, also what is no
    Exception, such as the panic of a library in Rust.

    on_failure: called with the error in the failing thread, before it ends, to release those that wait for its work.
    """

    def __init__(
        self, target: Callable[[], object], name: str, on_failure: Callable[[BaseException], None] = lambda error: None
    ) -> None:
        self._target = target
        self._on_failure = on_failure
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the thread; None where it runs or has returned."""
        return self._failure

    def check(self) -> None:
        """Raise the error that ended the thread; do nothing where it runs or has returned."""
        if self._failure is not None:
            raise self._failure

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            self._target()
        except BaseException as error:
            LOG.exception("thread %s has ended", self._thread.name)
            self._failure = error
            self._on_failure(error)
        finally:
            # Most are methods of the owner. Without this cycle an owner that is dropped is freed at once, and not, with
            # its sockets and a client's threads, at some later collection.
            del self._target, self._on_failure


class StoppableThread(SupervisedThread):
    """target: gets the event that `stop` sets, and must return soon after it."""

    def __init__(self, target: Callable[[threading.Event], object], name: str) -> None:
        self._stop = threading.Event()
        super().__init__(lambda: target(self._stop), name)

    def stop(self, release: Callable[[], None] = lambda: None) -> None:
        """Set the event and wait until the thread has ended. release: called in between, to end early what the thread
        waits for."""
        self._stop.set()
        release()
        self.join()


class SupervisedThreads:
    """Several threads of one owner, whose thread starts them, checks them and waits for them."""

    def __init__(self) -> None:
        self._threads: list[SupervisedThread] = []

    @property
    def running(self) -> bool:
        """Whether any of them runs."""
        return any(thread.running for thread in self._threads)

    def start(self, target: Callable[[], object], name: str) -> None:
        self._threads.append(SupervisedThread(target, name))

    def check(self) -> None:
        """Raise what ended one of them."""
        for thread in self._threads:
            thread.check()

    def join(self, timeout_s: float) -> bool:
        """Wait up to `timeout_s`. Returns whether all have ended."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not self.running
