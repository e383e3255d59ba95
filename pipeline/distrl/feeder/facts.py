"""Which tasks were fed, finished and learned, according to the topics. Pure: records in, facts out.

A task is outstanding from its record in `tasks` until the first of these facts:

1. The log holds its trajectory, readable or not.
2. The workers' group has committed past its record, and the trajectories were read up to an end captured after that
   commit was seen. A commit follows the acknowledgement of the trajectory (or of an unreadable task's dead letter), so
   the trajectory was in the log and has been deleted since, by retention or a person. The task is not fed again,
   although whether it was interrupted is unknown. A trajectory that was deleted was learned, as a learner refuses a
   log whose unlearned records are gone; one that a broker lost with the tail of its log may not have been. All this
   holds unless somebody moves the group's offsets by hand.
3. Its record lies below the low watermark of `tasks`: no worker will get it. A worker that already plays it may still
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
"""Task ids are untrusted: the feeder writes no longer numbers, and Python refuses to parse one of 4,300 digits."""


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
    """Family -> (index in the suite, id) of the next task to feed: all tasks before it were fed completely, and some of
    its own episodes may have been fed."""
    fed: IdSet = field(default_factory=IdSet)
    """The id of every task ever fed; those not finished or not learned are in `outstanding` and `unlearned`."""
    finished: IdSet = field(default_factory=IdSet)
    retried: int = 0
    version: Version | None = None
    update: int = -1
    """The last journalled update; -1 before the first."""
    deleted: int = 0
    """Upper bound of the records of `tasks` that were deleted before they were read: the sum of the low watermarks at
    that time."""
    learned_offset: int = 0
    """Offset of the trajectories topic before which all records are folded."""
    left_out: dict[int, str] = field(default_factory=dict)
    """Trajectories that `distrl skip` left out: offset -> sha256 of the value. The learner never counts them."""
    outstanding: Outstanding = field(default_factory=Outstanding)
    unlearned: Unlearned = field(default_factory=Unlearned)
    interrupted: dict[str, Task] = field(default_factory=dict)
    """Tasks to be fed again, by their next id, and episodes that a killed feeder left out, by theirs."""
    fed_by: dict[str, int] = field(default_factory=dict)
    """Family -> episodes fed, without retries."""
    tried: dict[str, int] = field(default_factory=dict)
    """Family -> episodes with a known outcome."""
    succeeded: dict[str, int] = field(default_factory=dict)
    """Family -> successes among them."""

    def __post_init__(self) -> None:
        """Raises ValueError for a saved state in which a task would be fed for ever."""
        if any(again != task.task_id or again in self.fed for again, task in self.interrupted.items()):
            raise ValueError("a task that was interrupted is fed again under another id, or was")

    def see_task(self, task: Task, place: LogPosition | None = None) -> None:
        """Note a record of the tasks topic at `place`, or, without a place, a task that is being fed now."""
        if self._known_as_fed(task) and task.task_id not in self.finished:
            self.outstanding.add(task.task_id, task.fed_version)
        if place is not None:
            self.outstanding.read(task.task_id, place.partition, place.offset)

    def see_sent(self, task_id: str, partition: int) -> None:
        """Note that a task is being published to this partition."""
        self.outstanding.sent(task_id, partition)

    def _known_as_fed(self, task: Task) -> bool:
        """Count the task as fed. Returns False if it was counted before."""
        if not self.fed.add(task.task_id):
            return False
        self.interrupted.pop(task.task_id, None)
        if RETRY.match(task.task_id):
            self.retried += 1
        else:
            _count(self.fed_by, task.family)
        return True

    def see_trajectory(self, offset: int, trajectory: Trajectory, value: bytes | None = None) -> None:
        """Note the record at `offset` of the trajectories topic. value: its bytes, to recognise a skipped record."""
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
        """Note an unreadable record of the trajectories topic: its task has ended, and the learner dead-letters it."""
        self.finished.add(task_id)
        self.outstanding.end(task_id)

    def see_version(self, version: Version) -> None:
        if self.version is None or version.version > self.version.version:
            self.version = version

    def see_update(self, update: Update, topic: str) -> None:
        """Note a line of the journal. topic: the full name of the trajectories topic.

        A line after lost lines is ignored, and a line that makes others void goes back (docs/adr/0010). Trajectories
        that were learned are no longer known here, so after going back all topics must be read into a new state.
        """
        self.left_out |= {each.offset: each.sha256 for each in update.skipped if each.topic == topic}
        if update.u > self.update + 1:
            return
        self.update = update.u - 1 if update.void else update.u
        self.learned_offset = next((mark.offset for mark in update.watermarks if mark.topic == topic), 0)
        self.unlearned.end_before(self.learned_offset)

    def _leaves_out(self, offset: int, value: bytes | None) -> bool:
        """Whether the learner leaves out this record. Its bytes are compared too, as another record may take its offset
        after a loss."""
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
        """Whether the record of every outstanding task was read, so that all facts here follow from the log."""
        return self.outstanding.unread == 0


def _count(counts: dict[str, int], family: str, more: int = 1) -> None:
    counts[family] = counts.get(family, 0) + more
