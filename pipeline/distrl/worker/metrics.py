"""Metrics of a worker: counters since the start, means over recent steps."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Sequence

from distrl.chat.endpoint import Counted
from distrl.types import Outcome, Step, Trajectory

RECENT_STEPS = 200
"""Steps in the means: some ten seconds with four phones, enough to smooth noise and still show a change."""

MOST_SUITES = 50
"""Most suites that episodes are counted by separately: the names come from tasks, which are untrusted, and each adds
metric series. Further suites are counted together as OTHER_SUITE."""
OTHER_SUITE = "other"

TIMINGS = ("phone_ms", "adb_ms", "policy_ms", "publish_ms")


class WorkerMetrics:
    """Counts trajectories. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._episodes = 0
        self._steps = 0
        self._busy = 0
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._recent: deque[Step] = deque(maxlen=RECENT_STEPS)

    def begin(self) -> None:
        with self._lock:
            self._busy += 1

    def end(self) -> None:
        with self._lock:
            self._busy -= 1

    def add(self, trajectory: Trajectory) -> None:
        with self._lock:
            self._episodes += 1
            self._outcomes[self._counted_as(trajectory.task.suite), trajectory.outcome] += 1
            self._steps += len(trajectory.steps)
            self._recent.extend(trajectory.steps)

    def _counted_as(self, suite: str) -> str:
        suites = {each for each, _ in self._outcomes}
        return suite if suite in suites or len(suites) < MOST_SUITES else OTHER_SUITE

    def outcomes(self) -> dict[tuple[str, ...], float]:
        """(suite, outcome) -> number of episodes that ended so; 0 for the outcomes that a suite has not had."""
        with self._lock:
            suites = {suite for suite, _ in self._outcomes}
            return {(suite, each): float(self._outcomes[suite, each]) for suite in suites for each in Outcome}

    def metrics(self) -> dict[str, float]:
        """episodes, steps, busy_devices and the mean of each of TIMINGS in ms."""
        with self._lock:
            recent = list(self._recent)
            counts = {"episodes": self._episodes, "steps": self._steps, "busy_devices": self._busy}
        return {**{name: float(count) for name, count in counts.items()}, **mean_timings(recent)}


def judge_metrics(counted: Counted) -> dict[str, float]:
    """The judge's requests, time, tokens and cost since the start, named as in telemetry.metrics."""
    return {
        "judge_requests": float(counted.requests),
        "judge_retries": float(counted.retries),
        "judge_seconds": counted.seconds / max(1, counted.requests),
        "judge_slowest_seconds": counted.slowest_s,
        "judge_tokens": float(counted.tokens_in + counted.tokens_out),
        "judge_cost": counted.cost,
    }


def mean_timings(steps: Sequence[Step]) -> dict[str, float]:
    """Mean of each of TIMINGS over `steps`, in ms; zeros without steps."""
    return {name: sum(getattr(step, name) for step in steps) / max(1, len(steps)) for name in TIMINGS}
