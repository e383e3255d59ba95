"""Hand-over from the one thread that polls Kafka to the actors, and back.

The poller offers a task only while an actor waits for one; an actor hands back the place of a task in the log once its
trajectory is acknowledged, and the poller commits it.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from distrl.types import LogPosition, Task


@dataclass(frozen=True, slots=True)
class Received:
    """A task and its place in the log."""

    position: LogPosition
    task: Task


class TaskQueue:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: deque[Received] = deque()
        self._finished: deque[LogPosition] = deque()
        self._waiting = 0
        self._closed = False

    def take(self) -> Received | None:
        """The next task, waiting for it; None once closed."""
        with self._changed:
            self._waiting += 1
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._closed or bool(self._tasks))
                return None if self._closed else self._tasks.popleft()
            finally:
                self._waiting -= 1

    def put(self, received: Received) -> None:
        with self._changed:
            self._tasks.append(received)
            self._changed.notify_all()

    def drop(self) -> list[Received]:
        """Takes back every task that no actor has taken."""
        with self._changed:
            dropped = list(self._tasks)
            self._tasks.clear()
            return dropped

    def finish(self, position: LogPosition) -> None:
        """The trajectory of the task at `position` is acknowledged."""
        with self._changed:
            self._finished.append(position)
            self._changed.notify_all()

    def finished(self) -> list[LogPosition]:
        """What was finished since the last call, in that order."""
        with self._changed:
            done = list(self._finished)
            self._finished.clear()
            return done

    def free(self) -> int:
        """How many more tasks would be started at once."""
        with self._changed:
            return max(0, self._waiting - len(self._tasks))

    def queued(self) -> int:
        with self._changed:
            return len(self._tasks)

    def wait_useful(self, timeout_s: float) -> None:
        """Until an actor is free, something is finished or the queue is closed, up to timeout_s."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or bool(self._finished) or self._waiting > len(self._tasks), timeout_s
            )

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """No further task is taken; those not taken are delivered again, to whoever polls next."""
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._changed.notify_all()
