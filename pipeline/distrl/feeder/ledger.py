"""What was fed, finished and learned, as the topics tell it, and what to feed next. Pure: records in, tasks out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from distrl.broker.identity import IdSet
from distrl.feeder.admission import Admission, Progress
from distrl.types import Outcome, Task, Trajectory, Update, Version

RETRY = re.compile(r"^(?P<first>.+)\.r(?P<count>[1-9][0-9]*)$")
PRIOR_TRIALS = 4
"""Trials that every family is credited with before its first: one early failure must not own the whole curriculum."""
LEAST_WEIGHT = 0.25
"""Weight of a family that always succeeds: what is never fed is forgotten, and nobody notices."""


def next_retry(task_id: str, most: int) -> str | None:
    """The id under which an interrupted task is fed again: a, a.r1, a.r2, … None after `most` retries."""
    found = RETRY.match(task_id)
    first, count = (found["first"], int(found["count"])) if found else (task_id, 0)
    return f"{first}.r{count + 1}" if count < most else None


def choose_family(fed: Sequence[int], tried: Sequence[int], succeeded: Sequence[int], curriculum: bool) -> int:
    """Which family is fed next, as an index: the one furthest below its share of what was fed.

    fed, tried, succeeded: (families,) tasks fed, episodes finished with a known outcome, successes among them.
    Shares are equal (round robin), or with `curriculum` in proportion to LEAST_WEIGHT or the failure rate, whichever
    is more. A pure function of the counts, so a feeder that starts again goes on as if it had not stopped.
    """
    if curriculum:
        failure = [
            1 - (won + PRIOR_TRIALS / 2) / (count + PRIOR_TRIALS) for count, won in zip(tried, succeeded, strict=True)
        ]
        weights = [max(LEAST_WEIGHT, rate) for rate in failure]
    else:
        weights = [1.0] * len(fed)
    return min(range(len(fed)), key=lambda family: ((fed[family] + 1) / weights[family], family))


@dataclass
class Ledger:
    """Feed it every record of tasks, trajectories, versions and updates in the order of their logs; ask `due`.

    families: of the suite, in its order. task_at: the suite's task at an index.
    """

    families: Sequence[str]
    task_at: Callable[[int], Task]
    admission: Admission
    max_retries: int
    curriculum: bool = False

    fed: IdSet = field(default_factory=IdSet)
    """The id of every task ever fed; those not finished or not learned are in `_outstanding` and `_unlearned`."""
    finished: IdSet = field(default_factory=IdSet)
    retried: int = 0
    version: Version | None = None
    update: int = -1
    """The last journalled update; -1 before the first."""
    _learned_offset: int = 0
    _outstanding: dict[str, int] = field(default_factory=dict)
    _unlearned: dict[int, int] = field(default_factory=dict)
    _interrupted: dict[str, Task] = field(default_factory=dict)
    _fed_by: Counter[str] = field(default_factory=Counter)
    _tried: Counter[str] = field(default_factory=Counter)
    _succeeded: Counter[str] = field(default_factory=Counter)
    _cursor: dict[str, int] = field(default_factory=dict)

    def see_task(self, task: Task) -> None:
        """A record of the tasks topic, or a task that is being fed now."""
        if not self.fed.add(task.task_id):
            return
        self._interrupted.pop(task.task_id, None)
        if RETRY.match(task.task_id):
            self.retried += 1
        else:
            self._fed_by[task.family] += 1
        if task.task_id not in self.finished:
            self._outstanding[task.task_id] = task.fed_version

    def see_trajectory(self, offset: int, trajectory: Trajectory) -> None:
        """The record at `offset` of the trajectories topic."""
        task = trajectory.task
        if not self.finished.add(task.task_id):
            return
        self._outstanding.pop(task.task_id, None)
        if trajectory.outcome is Outcome.INTERRUPTED:
            again = next_retry(task.task_id, self.max_retries)
            if again is not None and again not in self.fed:
                self._interrupted[again] = replace(task, task_id=again)
            return
        if offset >= self._learned_offset:
            self._unlearned[offset] = min((step.version for step in trajectory.steps), default=task.fed_version)
        if trajectory.outcome is not Outcome.UNKNOWN:
            self._tried[task.family] += 1
            self._succeeded[task.family] += trajectory.outcome is Outcome.SUCCESS

    def see_unreadable(self, task_id: str) -> None:
        """A record of the trajectories topic that cannot be read: its task is over, and the learner puts it aside."""
        self.finished.add(task_id)
        self._outstanding.pop(task_id, None)

    def see_version(self, version: Version) -> None:
        if self.version is None or version.version > self.version.version:
            self.version = version

    def see_update(self, update: Update, topic: str) -> None:
        """A line of the journal; `topic`: the full name of the trajectories topic."""
        self.update = max(self.update, update.u)
        for mark in update.watermarks:
            if mark.topic == topic:
                self._learned_offset = max(self._learned_offset, mark.offset)
        self._unlearned = {at: version for at, version in self._unlearned.items() if at >= self._learned_offset}

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    def due(self, now_ms: int) -> list[Task]:
        """The tasks to feed now, oldest retry first; none before there is a version to act with."""
        if self.version is None:
            return []
        oldest = min([*self._outstanding.values(), *self._unlearned.values()], default=None)
        progress = Progress(
            self.outstanding, len(self._unlearned), oldest,
            self.version.version, self.update, self.version.update,
        )  # fmt: skip
        tasks: list[Task] = []
        for _ in range(self.admission.allowed(progress)):
            task = replace(self._next(), fed_at=now_ms, fed_version=self.version.version)
            self.see_task(task)
            tasks.append(task)
        return tasks

    def _next(self) -> Task:
        if self._interrupted:
            return next(iter(self._interrupted.values()))
        family = self.families[
            choose_family(
                [self._fed_by[name] for name in self.families],
                [self._tried[name] for name in self.families],
                [self._succeeded[name] for name in self.families],
                self.curriculum,
            )
        ]
        return self._next_of(family)

    def _next_of(self, family: str) -> Task:
        """The first task of the suite, of that family, that was never fed. Families take turns in the suite."""
        index = self._cursor.get(family, self.families.index(family))
        while (task := self.task_at(index)).task_id in self.fed:
            index += len(self.families)
        self._cursor[family] = index
        return task
