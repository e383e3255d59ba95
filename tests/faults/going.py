"""What clients do all the time, each in a thread of its own, and how long none of it went on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from types import TracebackType

import factories
from distrl.broker import topic_admin
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.learner.journal_writer import JournalWriter, UnwrittenError
from distrl.types import Heartbeat, Update, Watermark
from groups import member

ACKNOWLEDGED_S = 300.0
PAUSE_S = 0.1


def until_written(attempt: Callable[[], None], within_s: float, stop: threading.Event | None = None) -> int:
    """Make attempts until one is written or `stop` is set; returns how many came to nothing."""
    deadline, failed = time.monotonic() + within_s, 0
    while stop is None or not stop.is_set():
        assert time.monotonic() < deadline
        try:
            attempt()
        except UnwrittenError:
            failed += 1
        else:
            break
    return failed


def append_line(journal: JournalWriter, number: int, stop: threading.Event | None = None) -> None:
    """Line `number` of a journal, tried until it is written or `stop` is set."""
    update = Update(number, (Watermark("t", 0, number),), "f" * 64, 1_000 + number)
    until_written(lambda: journal.append(update), ACKNOWLEDGED_S, stop)


class Going:
    """Records written, followed, journalled, handed out by the group, and topics described, until the block ends."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._done: dict[str, list[float]] = {}
        self._threads: list[threading.Thread] = []
        self._open = ExitStack()

    def __enter__(self) -> Going:
        opened, config = self._open, self.config
        self._producer = opened.enter_context(RecordProducer(config, "going"))
        self._journal_writer = opened.enter_context(JournalWriter(config))
        self._tasks = opened.enter_context(member(config))
        self._reader = opened.enter_context(LogReader(config, "heartbeats"))
        for name, step in (
            ("write", self._write),
            ("follow", self._follow),
            ("journal", self._journal),
            ("group", self._group),
            ("describe", self._describe),
        ):
            self._done[name] = []
            self._threads.append(threading.Thread(target=self._loop, args=(name, step), name=name, daemon=True))
        for thread in self._threads:
            thread.start()
        self.until_each(2)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(ACKNOWLEDGED_S)
        self._open.close()

    def until_each(self, times: int, timeout_s: float = ACKNOWLEDGED_S) -> None:
        """Until each of them was done so many times more."""
        wanted = {name: len(done) + times for name, done in self._done.items()}
        deadline = time.monotonic() + timeout_s
        while late := [name for name, count in wanted.items() if len(self._done[name]) < count]:
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, f"stand still: {late}"
            time.sleep(PAUSE_S)

    def longest_s(self, since: float) -> dict[str, float]:
        """Name -> the longest time since `since` (monotonic) between two successes of it."""
        now, found = time.monotonic(), {}
        for name, done in self._done.items():
            times = [since, *(at for at in done if at > since), now]
            found[name] = max(after - before for before, after in pairwise(times))
        return found

    def _loop(self, name: str, step: Callable[[int], None]) -> None:
        try:
            number = 0
            while not self._stop.is_set():
                step(number)
                self._done[name].append(time.monotonic())
                number += 1
                self._stop.wait(PAUSE_S)
        except Exception as error:
            self.failures.append(f"{name}: {type(error).__name__}: {error}")

    def _write(self, number: int) -> None:
        beat = Heartbeat("going", "worker", SYSTEM_CLOCK.now_ms(), None, None)
        self._producer.publish("heartbeats", "going", beat).result(ACKNOWLEDGED_S)

    def _follow(self, number: int) -> None:
        while not self._reader.read(0.2) and not self._stop.is_set():
            pass

    def _journal(self, number: int) -> None:
        append_line(self._journal_writer, number, self._stop)

    def _group(self, number: int) -> None:
        """A task is fed, handed out and committed."""
        task = factories.task(f"task-{number}")
        self._producer.publish("tasks", task.task_id, task).result(ACKNOWLEDGED_S)
        while not self._stop.is_set():
            found = self._tasks.poll(0.2)
            if found is not None:
                self._tasks.commit(found.position)
                if found.task.task_id == task.task_id:
                    return

    def _describe(self, number: int) -> None:
        topic_admin.describe(self.config)
