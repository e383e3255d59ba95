"""The state of a run from its topics: records in, a snapshot out. Pure: it owns no client, thread or clock."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from distrl.broker.duplicates import IdSet
from distrl.tasks.unsolved import Attempts, Unsolved
from distrl.types import Evaluation, Heartbeat, Outcome, Record, Split, Trajectory, Version

RATE_WINDOW_MS = 60_000
SUCCESS_WINDOW = 128
"""Trajectories in the moving success rate: about as many as in an evaluation, so that the two are comparable."""
HEARTBEAT_STALE_MS = 20_000
"""A process without a sign of life for longer is shown as silent. Longer than heartbeats wait for the successor of a
frozen broker; a trajectory or a version of a process is also a sign of life."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the live view and `distrl status` print. Rates are per minute, success is in [0, 1].

    lag_mean, lag_max: versions between the oldest that acted in a trajectory and the newest that was published when it
    ended, over the last SUCCESS_WINDOW.
    """

    trajectories: int
    per_minute: float
    success: float | None
    outcomes: Mapping[str, int]
    newest: Version | None
    lag_mean: float
    lag_max: int
    processes: tuple[Heartbeat, ...]
    silent: frozenset[str]
    evaluations: tuple[tuple[int, Split, int, float], ...]
    """(version, split, episodes, success), by version; one below 0 is of an agent without weights."""
    unsolved: tuple[Unsolved, ...] = ()
    """Tasks without a success in many attempts, of training and evaluations."""

    def heard(self) -> list[Heartbeat]:
        """The last heartbeat of every process that is not silent."""
        return [beat for beat in self.processes if beat.process not in self.silent]

    def learner_metrics(self) -> Mapping[str, float]:
        return next((beat.metrics for beat in self.processes if beat.role == "learner"), {})


@dataclass
class RunView:
    """Takes every record of a run's topics, in any order; `snapshot` gives the state at a time."""

    _finished: deque[int] = field(default_factory=deque)
    _recent: deque[bool] = field(default_factory=lambda: deque(maxlen=SUCCESS_WINDOW))
    _outcomes: Counter[str] = field(default_factory=Counter)
    _acted: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=SUCCESS_WINDOW))
    """(when it ended, the oldest version that acted in it) of the last trajectories."""
    _published: list[tuple[int, int]] = field(default_factory=list)
    """(when, number) of every version, by time."""
    _newest: Version | None = None
    _beats: dict[str, Heartbeat] = field(default_factory=dict)
    _worked: dict[str, int] = field(default_factory=dict)
    """When a worker last finished an episode, by its name."""
    _scores: dict[tuple[int, str, Split], dict[str, bool]] = field(default_factory=dict)
    _seen: IdSet = field(default_factory=IdSet)
    _attempts: Attempts = field(default_factory=Attempts)

    def feed(self, record: Record) -> None:
        match record:
            case Trajectory():
                self._trajectory(record)
            case Version():
                insort(self._published, (record.published_at, record.version))
                if self._newest is None or record.version > self._newest.version:
                    self._newest = record
            case Heartbeat():
                known = self._beats.get(record.process)
                if known is None or record.at >= known.at:
                    self._beats[record.process] = record
            case Evaluation():
                self._evaluation(record)

    def finished(self, task_id: str) -> bool:
        """Whether the view has a trajectory of the task."""
        return task_id in self._seen

    def snapshot(self, now_ms: int) -> Snapshot:
        while self._finished and self._finished[0] < now_ms - RATE_WINDOW_MS:
            self._finished.popleft()
        lags = self._lags()
        beats = tuple(sorted(self._beats.values(), key=lambda beat: (beat.role, beat.process)))
        return Snapshot(
            trajectories=len(self._seen),
            per_minute=len(self._finished) * 60_000 / RATE_WINDOW_MS,
            success=sum(self._recent) / len(self._recent) if self._recent else None,
            outcomes=dict(self._outcomes),
            newest=self._newest,
            lag_mean=sum(lags) / len(lags) if lags else 0.0,
            lag_max=max(lags, default=0),
            processes=beats,
            silent=frozenset(beat.process for beat in beats if self._heard(beat) < now_ms - HEARTBEAT_STALE_MS),
            evaluations=tuple(
                (version, split, len(won), sum(won.values()) / len(won))
                for (version, _, split), won in sorted(self._scores.items(), key=lambda item: item[0])
            ),
            unsolved=self._attempts.unsolved(),
        )

    def _heard(self, beat: Heartbeat) -> int:
        """The last sign of life of a process: its heartbeats may wait for a broker that its work does not need."""
        published = max((at for at, _ in self._published), default=0) if beat.role == "learner" else 0
        return max(beat.at, published, self._worked.get(beat.process, 0))

    def _evaluation(self, evaluation: Evaluation) -> None:
        """Counts like the report: only the first record of a task, and only with a known outcome."""
        record = evaluation.trajectory
        if record.outcome in (Outcome.SUCCESS, Outcome.FAILURE):
            agent = evaluation.version_sha256 if evaluation.version < 0 else ""
            won = self._scores.setdefault((evaluation.version, agent, record.task.split), {})
            if record.task_id not in won:
                won[record.task_id] = record.outcome is Outcome.SUCCESS
                self._attempts.add(record.task, record.outcome)

    def _trajectory(self, record: Trajectory) -> None:
        self._worked[record.worker] = max(record.finished_at, self._worked.get(record.worker, 0))
        if not self._seen.add(record.task_id):
            return
        self._finished.append(record.finished_at)
        self._outcomes[record.outcome.value] += 1
        self._attempts.add(record.task, record.outcome)
        if record.outcome in (Outcome.SUCCESS, Outcome.FAILURE):
            self._recent.append(record.outcome is Outcome.SUCCESS)
        if record.steps and not record.is_expert:
            self._acted.append((record.finished_at, min(step.version for step in record.steps)))

    def _lags(self) -> list[int]:
        """By the records' own times: topics are read one after the other, so later versions are known already."""
        times = [at for at, _ in self._published]
        newest = list(accumulate((number for _, number in self._published), max, initial=0))
        return [max(0, newest[bisect_right(times, ended)] - oldest) for ended, oldest in self._acted]
