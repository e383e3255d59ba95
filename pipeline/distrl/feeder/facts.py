"""What was fed, finished and learned according to the topics. Pure: records in, facts out.

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
is retained.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from distrl.broker.duplicates import IdSet
from distrl.feeder.outstanding import Outstanding, Unlearned
from distrl.types import LogPosition, Outcome, Task, Trajectory, Update, Version

RETRY = re.compile(r"^(?P<first>.+)\.r(?P<count>[1-9][0-9]{0,8})$")
"""Task ids are untrusted: a longer number is no count of ours, and of one with 4,300 digits Python makes no integer."""


def next_retry(task_id: str, most: int) -> str | None:
    """The id under which an interrupted task is fed again: a, a.r1, a.r2, … None after `most` retries."""
    found = RETRY.match(task_id)
    first, count = (found["first"], int(found["count"])) if found else (task_id, 0)
    return f"{first}.r{count + 1}" if count < most else None


def episode_id(task_id: str, number: int) -> str:
    """The id under which a task is fed for its episode `number`, from 1 on: a, a.e2, a.e3, …"""
    return task_id if number == 1 else f"{task_id}.e{number}"


@dataclass(slots=True)
class TaskFacts:
    """Gets every record of tasks, trajectories, versions and updates, each topic's in log order.

    All fields are in snapshots (`distrl.broker.packed_state`): whoever changes what they mean raises FORMAT there.
    """

    max_retries: int
    families: tuple[str, ...] = ()
    """Of the suite that `cursors` belong to, in its order."""
    cursors: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By family the index of the suite's task that was found to be the next, and its id there: all before it were fed,
    and it may have been, for some of its episodes."""
    fed: IdSet = field(default_factory=IdSet)
    """The id of every task ever fed; those not finished or not learned are in `outstanding` and `unlearned`."""
    finished: IdSet = field(default_factory=IdSet)
    retried: int = 0
    version: Version | None = None
    update: int = -1
    """The last journalled update; -1 before the first."""
    deleted: int = 0
    """Upper bound of the records of `tasks` deleted before they were read: the sum of its low watermarks then."""
    learned_offset: int = 0
    left_out: dict[int, str] = field(default_factory=dict)
    """Trajectories that `distrl skip` left out: offset -> sha256 of the value. The learner never counts them."""
    outstanding: Outstanding = field(default_factory=Outstanding)
    unlearned: Unlearned = field(default_factory=Unlearned)
    interrupted: dict[str, Task] = field(default_factory=dict)
    """Tasks to be fed again, by their next id."""
    fed_by: dict[str, int] = field(default_factory=dict)
    """Episodes fed by family, without retries; then episodes with a known outcome, and successes."""
    tried: dict[str, int] = field(default_factory=dict)
    succeeded: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuses a saved state in which a task would be fed for ever. Raises ValueError."""
        if any(again != task.task_id or again in self.fed for again, task in self.interrupted.items()):
            raise ValueError("a task that was interrupted is fed again under another id, or was")

    def see_task(self, task: Task, place: LogPosition | None = None) -> None:
        """A record of the tasks topic at `place`, or (without one) a task that is being fed now."""
        if self._known_as_fed(task) and task.task_id not in self.finished:
            self.outstanding.add(task.task_id, task.fed_version)
        if place is not None:
            self.outstanding.read(task.task_id, place.partition, place.offset)

    def see_sent(self, task_id: str, partition: int) -> None:
        """A task is being published to this partition."""
        self.outstanding.sent(task_id, partition)

    def _known_as_fed(self, task: Task) -> bool:
        """Count the task as fed; False if it was already."""
        if not self.fed.add(task.task_id):
            return False
        self.interrupted.pop(task.task_id, None)
        if RETRY.match(task.task_id):
            self.retried += 1
        else:
            _count(self.fed_by, task.family)
        return True

    def see_trajectory(self, offset: int, trajectory: Trajectory, value: bytes | None = None) -> None:
        """The record at `offset` of the trajectories topic, and the bytes that it has there."""
        task = trajectory.task
        self._known_as_fed(task)
        if not self.finished.add(task.task_id):
            return
        self.outstanding.end(task.task_id)
        if trajectory.outcome is Outcome.INTERRUPTED:
            again = next_retry(task.task_id, self.max_retries)
            if again is not None and again not in self.fed:
                self.interrupted[again] = replace(task, task_id=again)
            return
        if offset >= self.learned_offset and not self._leaves_out(offset, value):
            self.unlearned.add(offset, min((step.version for step in trajectory.steps), default=task.fed_version))
        if trajectory.outcome is not Outcome.UNKNOWN:
            _count(self.tried, task.family)
            _count(self.succeeded, task.family, trajectory.outcome is Outcome.SUCCESS)

    def see_unreadable(self, task_id: str) -> None:
        """An unreadable record of the trajectories topic: its task has ended, and the learner dead-letters it."""
        self.finished.add(task_id)
        self.outstanding.end(task_id)

    def see_version(self, version: Version) -> None:
        if self.version is None or version.version > self.version.version:
            self.version = version

    def see_update(self, update: Update, topic: str) -> None:
        """A line of the journal; `topic`: the full name of the trajectories topic.

        A line that follows lost ones is ignored, and one that makes others void goes back (docs/adr/0010). Learned
        trajectories were forgotten, so to restore them when going back, read all topics into a new state.
        """
        self.left_out |= {each.offset: each.sha256 for each in update.skipped if each.topic == topic}
        if update.u > self.update + 1:
            return
        self.update = update.u - 1 if update.void else update.u
        self.learned_offset = next((mark.offset for mark in update.watermarks if mark.topic == topic), 0)
        self.unlearned.end_before(self.learned_offset)

    def _leaves_out(self, offset: int, value: bytes | None) -> bool:
        """Whether the learner leaves this very record out; its offset may have another one after a loss."""
        return offset in self.left_out and hashlib.sha256(value or b"").hexdigest() == self.left_out[offset]

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
        ended = list(self.outstanding.ended_before(offsets))
        for task_id in ended:
            self.outstanding.end(task_id)
        return ended

    @property
    def read_back(self) -> bool:
        """Whether the record of every outstanding task was read, so that these are facts of the log alone."""
        return self.outstanding.unread == 0


def _count(counts: dict[str, int], family: str, more: int = 1) -> None:
    counts[family] = counts.get(family, 0) + more
