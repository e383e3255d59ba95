"""The first span of each task's trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from distrl.broker.producer import Headers
from distrl.clock import SYSTEM_CLOCK
from distrl.telemetry.tracing import Attributes, Span, Tracer
from distrl.types import Task


@contextmanager
def traced(tracer: Tracer, tasks: Sequence[Task]) -> Iterator[Mapping[str, Headers]]:
    """Trace the tasks that the block feeds. Yields task id -> the headers for its record."""
    spans = {task.task_id: _begun(tracer, task) for task in tasks}
    try:
        yield {task_id: span.headers for task_id, span in spans.items()}
    finally:
        now = SYSTEM_CLOCK.now_ms()
        for span in spans.values():
            span.end(now)


def _begun(tracer: Tracer, task: Task) -> Span:
    about: Attributes = {
        "distrl.task": task.task_id,
        "distrl.suite": task.suite,
        "distrl.family": task.family,
        "distrl.fed_version": task.fed_version,
    }
    return tracer.begin("feed task", (), task.fed_at, about, "producer")
