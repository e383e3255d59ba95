"""The spans of an episode. They are made from its trajectory, which has all times; nothing else is measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distrl.broker.producer import Headers
from distrl.clock import Clock
from distrl.telemetry.tracing import Attributes, Span, Tracer
from distrl.types import Step, Trajectory


@contextmanager
def traced(tracer: Tracer, task: Headers, trajectory: Trajectory, clock: Clock) -> Iterator[Headers]:
    """Trace an episode that was played, and the block as its publication. Yields the headers for its record.

    task: the headers of the task's record.
    """
    episode = tracer.begin("play episode", task, trajectory.started_at, _about(trajectory), "consumer")
    if episode.recording:
        for number, step in enumerate(trajectory.steps):
            _trace_step(episode, number, step)
    publishing = episode.child("publish trajectory", clock.now_ms(), {}, "producer")
    try:
        yield publishing.headers
    finally:
        now = clock.now_ms()
        publishing.end(now)
        episode.end(now)


def _trace_step(episode: Span, number: int, step: Step) -> None:
    """A step, from the look at the screen to the end of its action, and the decision in it."""
    decided = step.at - round(step.policy_ms)
    about: Attributes = {
        "distrl.step": number,
        "distrl.action": step.action.kind.value,
        "distrl.version": step.version,
        "distrl.adb_ms": step.adb_ms,
        "distrl.publish_ms": step.publish_ms,
        "distrl.phone_ms": step.phone_ms,
    }
    span = episode.child("step", decided - round(step.adb_ms + step.publish_ms), about)
    span.child("decide", decided, {"distrl.version": step.version}).end(step.at)
    span.end(step.at + round(step.phone_ms))


def _about(trajectory: Trajectory) -> Attributes:
    return {
        "distrl.task": trajectory.task_id,
        "distrl.attempt": trajectory.attempt_id,
        "distrl.device": trajectory.device,
        "distrl.outcome": trajectory.outcome.value,
        "distrl.steps": len(trajectory.steps),
    }
