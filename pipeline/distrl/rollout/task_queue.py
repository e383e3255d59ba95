"""Passes tasks from the polling thread to the actors, and the log positions of finished tasks back.

The polling thread resumes the topic only while an actor waits for a task. Once a trajectory is acknowledged, the actor
returns the position of its task, and the polling thread commits it.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from distrl.broker.producer import Headers
from distrl.types import LogPosition, Task


@dataclass(frozen=True, slots=True)
class Received:
    """A task, its position in the log and its record's headers."""

    position: LogPosition
    task: Task
    headers: Headers = ()


class TaskQueue:
    """Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: deque[Received] = deque()
        self._finished: deque[LogPosition] = deque()
        self._waiting = 0
        self._closed = False

    def take(self) -> Received | None:
        """Wait for the next task. None once closed."""
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
        """Remove and return the tasks that no actor has taken."""
        with self._changed:
            dropped = list(self._tasks)
            self._tasks.clear()
            return dropped

    def finish(self, position: LogPosition) -> None:
        """Note that the trajectory of the task at `position` is acknowledged."""
        with self._changed:
            self._finished.append(position)
            self._changed.notify_all()

    def finished(self) -> list[LogPosition]:
        """The positions finished since the last call, in that order."""
        with self._changed:
            done = list(self._finished)
            self._finished.clear()
            return done

    def free(self) -> int:
        """How many further tasks would start immediately."""
        with self._changed:
            return max(0, self._waiting - len(self._tasks))

    def queued(self) -> int:
        with self._changed:
            return len(self._tasks)

    def wait_useful(self, timeout_s: float) -> None:
        """Wait until an actor is free, a task is finished or the queue is closed, up to timeout_s."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or bool(self._finished) or self._waiting > len(self._tasks), timeout_s
            )

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Hand out no further task. Those not taken stay uncommitted and are delivered again."""
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._changed.notify_all()
