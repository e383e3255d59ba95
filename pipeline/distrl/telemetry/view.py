"""The state of a run from its topics: records in, a status out. Pure: it owns no client, thread or clock.

What it keeps does not grow with the number of trajectories, but for ids, of which thousands take a few bytes, and for
the scores of each version that was evaluated.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

from distrl.broker.duplicates import IdSet, policy_and_task
from distrl.tasks.unsolved import Attempts, Unsolved
from distrl.types import Evaluation, Heartbeat, Outcome, Record, Split, Trajectory, Version

T = TypeVar("T")

RATE_WINDOW_MS = 60_000
SUCCESS_WINDOW = 128
"""Trajectories in the moving success rate: about as many as in an evaluation, so that the two are comparable."""
RATE_KEPT = 10_000
"""Ends of episodes that are kept for the rate: more a minute are shown as so many."""
VERSIONS_KEPT = 1_024
"""The newest versions, whose time is kept for the lag. It is too high where a trajectory ended before them."""
FORGOTTEN_MS = 24 * 3_600_000
"""A process is shown for so long after its last heartbeat, as heartbeats are kept for a day."""
HEARTBEAT_STALE_MS = 20_000
"""A process without a sign of life for longer is shown as silent. Longer than heartbeats wait for the successor of a
frozen broker; a trajectory or a version of a process is also a sign of life."""

LEARNER = "learner"
"""The name of the learner's process."""


@dataclass(frozen=True, slots=True)
class RunStatus:
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
    evaluations: tuple[tuple[int, str, Split, int, float], ...]
    """(version, split, episodes, success), by version; one below 0 is of an agent without weights."""
    unsolved: tuple[Unsolved, ...] = ()
    """Tasks without a success in many attempts, of training and evaluations."""

    def heard(self) -> list[Heartbeat]:
        """The last heartbeat of every process that is not silent."""
        return [beat for beat in self.processes if beat.process not in self.silent]

    def learner_metrics(self) -> Mapping[str, float]:
        return next((beat.metrics for beat in self.processes if beat.role == "learner"), {})


@dataclass(slots=True)
class Score:
    """Of one version or agent, on one split of a suite: how many tasks have a known outcome, and how many of them
    succeeded."""

    known: int = 0
    won: int = 0


@dataclass(slots=True)
class RunView:
    """Takes every record of a run's topics, in any order; `status` gives the state at a time.

    All fields are in snapshots (`distrl.broker.packed_state`): whoever changes what they mean raises FORMAT there.
    """

    _finished: list[int] = field(default_factory=list)
    """When the last RATE_KEPT trajectories ended."""
    _recent: list[bool] = field(default_factory=list)
    """Success of the last SUCCESS_WINDOW with a known outcome."""
    _outcomes: dict[str, int] = field(default_factory=dict)
    _acted: list[tuple[int, int]] = field(default_factory=list)
    """(when it ended, the oldest version that acted in it) of the last SUCCESS_WINDOW trajectories."""
    _published: list[tuple[int, int]] = field(default_factory=list)
    """(when, number) of the newest VERSIONS_KEPT versions, by time."""
    _earlier: int = 0
    """The highest number among the versions before those."""
    _newest: Version | None = None
    _beats: dict[str, tuple[int, Heartbeat]] = field(default_factory=dict)
    """The newest of each process by its name, and when the broker took it, by its clock."""
    _heard: dict[str, int] = field(default_factory=dict)
    """When a process last showed a sign of life, by its name and the broker's clock: those of machines differ. Episodes
    are a worker's and versions the LEARNER's: heartbeats may wait for a broker that the work does not need."""
    _now: int = 0
    """The latest time of a record by the broker's clock: no later than now."""
    _scores: dict[tuple[int, str, str, Split], Score] = field(default_factory=dict)
    _evaluated: IdSet = field(default_factory=IdSet)
    """`policy_and_task` of every evaluation."""
    _seen: IdSet = field(default_factory=IdSet)
    _attempts: Attempts = field(default_factory=Attempts)
    last_trajectory: int = 0
    """When the last one that was not interrupted was appended, by the broker's clock, ms since the epoch; 0: none."""

    def __post_init__(self) -> None:
        """Refuses a saved state that cannot be shown. Raises ValueError."""
        if not all(score.known for score in self._scores.values()):
            raise ValueError("there is a score of nothing")
        if not self._beats.keys() <= self._heard.keys():
            raise ValueError("a process was never heard of")

    def feed(self, record: Record, appended_at: int = 0) -> None:
        """appended_at: by the broker's clock, ms since the epoch."""
        self._now = max(self._now, appended_at)
        match record:
            case Trajectory():
                if record.outcome is not Outcome.INTERRUPTED:
                    self.last_trajectory = max(self.last_trajectory, appended_at)
                self._hear(record.worker, appended_at)
                self._trajectory(record, appended_at)
            case Version():
                self._hear(LEARNER, appended_at)
                self._version(record)
            case Heartbeat():
                self._hear(record.process, appended_at)
                known = self._beats.get(record.process)
                if known is None or appended_at >= known[0]:  # a process's own clock may be set back
                    self._beats[record.process] = appended_at, record
            case Evaluation():
                self._evaluation(record)

    def finished(self, task_id: str) -> bool:
        """Whether the view has a trajectory of the task."""
        return task_id in self._seen

    @property
    def newest(self) -> int:
        """The latest time of a record by the broker's clock, ms since the epoch; 0: there is none."""
        return self._now

    @property
    def processes(self) -> int:
        """How many there are, silent ones too."""
        return len(self._beats)

    def forget(self, now_ms: int) -> None:
        """Drop what `status` shows no more from now on."""
        self._heard = {name: at for name, at in self._heard.items() if at >= now_ms - FORGOTTEN_MS}
        self._beats = {name: beat for name, beat in self._beats.items() if name in self._heard}

    def status(self, now_ms: int) -> RunStatus:
        """now_ms: by the clock of who looks on; where that is behind the broker's, the newest record's time counts."""
        lags, now_ms = self._lags(), max(now_ms, self._now)
        shown = (beat for name, (_, beat) in self._beats.items() if self._heard[name] >= now_ms - FORGOTTEN_MS)
        beats = tuple(sorted(shown, key=lambda beat: (beat.role, beat.process)))
        return RunStatus(
            trajectories=len(self._seen),
            per_minute=sum(at >= now_ms - RATE_WINDOW_MS for at in self._finished) * 60_000 / RATE_WINDOW_MS,
            success=sum(self._recent) / len(self._recent) if self._recent else None,
            outcomes=dict(self._outcomes),
            newest=self._newest,
            lag_mean=sum(lags) / len(lags) if lags else 0.0,
            lag_max=max(lags, default=0),
            processes=beats,
            silent=frozenset(beat.process for beat in beats if self._heard[beat.process] < now_ms - HEARTBEAT_STALE_MS),
            evaluations=tuple(
                (version, suite, split, score.known, score.won / score.known)
                for (version, _, suite, split), score in sorted(self._scores.items(), key=lambda item: item[0])
            ),
            unsolved=self._attempts.unsolved(),
        )

    def _hear(self, process: str, at: int) -> None:
        self._heard[process] = max(at, self._heard.get(process, 0))

    def _version(self, version: Version) -> None:
        insort(self._published, (version.published_at, version.version))
        if len(self._published) > VERSIONS_KEPT:
            self._earlier = max(self._earlier, self._published.pop(0)[1])
        if self._newest is None or version.version > self._newest.version:
            self._newest = version

    def _evaluation(self, evaluation: Evaluation) -> None:
        record = evaluation.trajectory
        if self._evaluated.add(policy_and_task(evaluation)) and record.outcome.is_known:
            agent = evaluation.version_sha256 if evaluation.version < 0 else ""
            played = record.task.suite, record.task.split
            score = self._scores.setdefault((evaluation.version, agent, *played), Score())
            score.known += 1
            score.won += record.outcome is Outcome.SUCCESS
            self._attempts.add(record.task, record.outcome)

    def _trajectory(self, record: Trajectory, appended_at: int) -> None:
        if not self._seen.add(record.task_id):
            return
        _append(self._finished, appended_at, RATE_KEPT)
        self._outcomes[record.outcome.value] = self._outcomes.get(record.outcome.value, 0) + 1
        self._attempts.add(record.task, record.outcome)
        if record.outcome.is_known:
            _append(self._recent, record.outcome is Outcome.SUCCESS, SUCCESS_WINDOW)
        if record.steps and not record.is_expert:
            oldest = min(step.version for step in record.steps)
            _append(self._acted, (record.finished_at, oldest), SUCCESS_WINDOW)

    def _lags(self) -> list[int]:
        """By the records' own times: topics are read one after the other, so later versions are known already."""
        times = [at for at, _ in self._published]
        newest = list(accumulate((number for _, number in self._published), max, initial=self._earlier))
        return [max(0, newest[bisect_right(times, ended)] - oldest) for ended, oldest in self._acted]


def _append(values: list[T], value: T, most: int) -> None:
    """Append, and keep the last `most`. A list, as a deque is no plain value."""
    values.append(value)
    del values[:-most]
