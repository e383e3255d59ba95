"""What was fed, finished and learned according to the topics, and what to feed next. Pure: records in, tasks out.

A task is outstanding from its record in `tasks` until the first of these facts:

1. The log holds its trajectory, readable or not.
2. The workers' group has committed past its record, and the trajectories were read up to an end captured after that
   commit was seen. A commit follows the acknowledgement of the trajectory (or of an unreadable task's dead letter), so
   the trajectory was in the log and was deleted since, by retention or a person. Whether it was interrupted is unknown,
   and it is not fed again. A learner refuses a log whose unlearned records are gone, so it was learned. This holds
   unless somebody moves the group's offsets by hand.
3. Its record lies below the low watermark of `tasks`: no worker will get it. A worker that plays it already may still
   publish its trajectory, which then counts as unlearned like any other.

A trajectory also proves that its task was fed, so a task whose record was deleted is not fed again while its trajectory
is retained. Tasks of a family are fed in the order of the suite, so all before the last known one were fed; deleted
records leave gaps no longer than their number.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heapreplace

from distrl.broker.duplicates import IdSet
from distrl.feeder.admission import Admission, Progress
from distrl.feeder.outstanding import Outstanding, Versions
from distrl.types import LogPosition, Outcome, Task, Trajectory, Update, Version

RETRY = re.compile(r"^(?P<first>.+)\.r(?P<count>[1-9][0-9]*)$")
PRIOR_TRIALS = 4
"""Trials credited to every family before its first, so that one early failure does not dominate the curriculum."""
LEAST_WEIGHT = 0.25
"""Weight of a family that always succeeds: without it the policy could forget the family unnoticed."""


def next_retry(task_id: str, most: int) -> str | None:
    """The id under which an interrupted task is fed again: a, a.r1, a.r2, … None after `most` retries."""
    found = RETRY.match(task_id)
    first, count = (found["first"], int(found["count"])) if found else (task_id, 0)
    return f"{first}.r{count + 1}" if count < most else None


def least_loaded(loads: Mapping[int, int], partitions: int, count: int) -> list[int]:
    """The partitions of `count` further tasks: each the one with the fewest outstanding tasks, the lowest of equals.

    loads: outstanding tasks by partition. A slow worker, or one with few phones, gets new tasks only as it finishes old
    ones, so that its partitions do not use up feeder.outstanding.
    """
    loaded = [(loads.get(partition, 0), partition) for partition in range(partitions)]
    heapify(loaded)
    chosen = []
    for _ in range(count):
        load, partition = loaded[0]
        heapreplace(loaded, (load + 1, partition))
        chosen.append(partition)
    return chosen


def choose_family(fed: Sequence[int], tried: Sequence[int], succeeded: Sequence[int], curriculum: bool) -> int:
    """The index of the family to feed next: the one furthest below its share of the tasks fed.

    fed, tried, succeeded: (families,) tasks fed, episodes finished with a known outcome, successes among them.
    Shares are equal (round robin), or with `curriculum` proportional to max(LEAST_WEIGHT, failure rate). A pure
    function of the counts, so a restarted feeder continues as if it had not stopped.
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
class FeederState:
    """Gets every record of tasks, trajectories, versions and updates in log order; `due` returns the tasks to feed."""

    families: Sequence[str]
    """Of the suite, in its order."""
    task_at: Callable[[int], Task]
    """The suite's task at an index."""
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
    deleted: int = 0
    """Upper bound of the records of `tasks` deleted before they were read: the sum of its low watermarks."""
    _learned_offset: int = 0
    _outstanding: Outstanding = field(default_factory=Outstanding)
    _unlearned: dict[int, int] = field(default_factory=dict)
    """Offset of a trajectory that no update folds -> the oldest version of its steps."""
    _unlearned_versions: Versions = field(default_factory=Versions)
    _interrupted: dict[str, Task] = field(default_factory=dict)
    _fed_by: Counter[str] = field(default_factory=Counter)
    _tried: Counter[str] = field(default_factory=Counter)
    _succeeded: Counter[str] = field(default_factory=Counter)
    _cursor: dict[str, int] = field(default_factory=dict)

    def see_task(self, task: Task, place: LogPosition | None = None) -> None:
        """A record of the tasks topic at `place`, or (without one) a task that is being fed now."""
        if self._known_as_fed(task) and task.task_id not in self.finished:
            self._outstanding.add(task.task_id, task.fed_version)
        if place is not None:
            self._outstanding.read(task.task_id, place.partition, place.offset)

    def see_sent(self, task_id: str, partition: int) -> None:
        """A task is being published to this partition."""
        self._outstanding.sent(task_id, partition)

    def _known_as_fed(self, task: Task) -> bool:
        """Count the task as fed; False if it was already."""
        if not self.fed.add(task.task_id):
            return False
        self._interrupted.pop(task.task_id, None)
        if RETRY.match(task.task_id):
            self.retried += 1
        else:
            self._fed_by[task.family] += 1
        return True

    def see_trajectory(self, offset: int, trajectory: Trajectory) -> None:
        """The record at `offset` of the trajectories topic."""
        task = trajectory.task
        self._known_as_fed(task)
        if not self.finished.add(task.task_id):
            return
        self._outstanding.end(task.task_id)
        if trajectory.outcome is Outcome.INTERRUPTED:
            again = next_retry(task.task_id, self.max_retries)
            if again is not None and again not in self.fed:
                self._interrupted[again] = replace(task, task_id=again)
            return
        if offset >= self._learned_offset:
            oldest = min((step.version for step in trajectory.steps), default=task.fed_version)
            self._unlearned[offset] = oldest
            self._unlearned_versions.add(oldest)
        if trajectory.outcome is not Outcome.UNKNOWN:
            self._tried[task.family] += 1
            self._succeeded[task.family] += trajectory.outcome is Outcome.SUCCESS

    def see_unreadable(self, task_id: str) -> None:
        """An unreadable record of the trajectories topic: its task has ended, and the learner dead-letters it."""
        self.finished.add(task_id)
        self._outstanding.end(task_id)

    def see_version(self, version: Version) -> None:
        if self.version is None or version.version > self.version.version:
            self.version = version

    def see_update(self, update: Update, topic: str) -> None:
        """A line of the journal; `topic`: the full name of the trajectories topic.

        A line that follows lost ones is ignored, and one that makes others void goes back (docs/adr/0010). Learned
        trajectories were forgotten, so to restore them when going back, read all topics into a new state.
        """
        if update.u > self.update + 1:
            return
        self.update = update.u - 1 if update.void else update.u
        self._learned_offset = next((mark.offset for mark in update.watermarks if mark.topic == topic), 0)
        for at in [at for at in self._unlearned if at < self._learned_offset]:
            self._unlearned_versions.remove(self._unlearned.pop(at))

    def see_committed(self, committed: Mapping[int, int]) -> list[str]:
        """The workers' next offset by partition, read before the end to which trajectories are read now.

        Returns the ids of the tasks that it proves finished, whose trajectories are deleted.
        """
        return self._end_before(committed)

    def see_deleted(self, first: Mapping[int, int]) -> list[str]:
        """first: the first retained offset by partition of `tasks`. Returns the ids of the tasks that no worker will
        get.
        """
        return self._end_before(first)

    def _end_before(self, offsets: Mapping[int, int]) -> list[str]:
        ended = list(self._outstanding.ended_before(offsets))
        for task_id in ended:
            self._outstanding.end(task_id)
        return ended

    @property
    def outstanding(self) -> int:
        return len(self._outstanding)

    def loads(self) -> Mapping[int, int]:
        """Outstanding tasks by partition. A view."""
        return self._outstanding.loads

    def due(self, now_ms: int) -> list[Task]:
        """The tasks to feed now, oldest retry first; none before there is a version to act with."""
        if self.version is None:
            return []
        oldest = [self._outstanding.versions.oldest, self._unlearned_versions.oldest]
        progress = Progress(
            self.outstanding,
            len(self._unlearned),
            min((version for version in oldest if version is not None), default=None),
            self.version.version,
            self.update,
            self.version.update,
        )
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
        index = self._cursor[family] if family in self._cursor else self._after_last(family)
        while (task := self.task_at(index)).task_id in self.fed:
            index += len(self.families)
        self._cursor[family] = index
        return task

    def _after_last(self, family: str) -> int:
        """The index after the last task of the family that is known to be fed, across gaps of deleted records.

        If none is known although records were deleted, skips as many tasks as records.
        """
        first, step = self.families.index(family), len(self.families)
        after, gap, index = first, 0, first
        while gap <= self.deleted:
            if self.task_at(index).task_id in self.fed:
                after, gap = index + step, 0
            else:
                gap += 1
            index += step
        return after if after > first else first + self.deleted * step
