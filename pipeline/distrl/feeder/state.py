"""Decides what to feed next from the facts of the topics (facts.py). Pure.

Tasks of a family are fed in the order of the suite, so all before the last known one were fed. Deleted records leave
gaps, together no longer than the number of deleted records. The episodes of one task are fed one after the other, in
the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from distrl.feeder.admission import Admission, Progress
from distrl.feeder.facts import TaskFacts, episode_id
from distrl.types import Task

PRIOR_TRIALS = 4
"""Trials credited to every family before its first, so that one early failure does not dominate the curriculum."""
LEAST_WEIGHT = 0.25
"""Weight of a family that always succeeds: without it the policy could forget the family unnoticed."""


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
    """`due` returns the tasks to feed."""

    families: Sequence[str]
    """Of the suite, in its order."""
    task_at: Callable[[int], Task]
    """The suite's task at an index."""
    admission: Admission
    facts: TaskFacts
    curriculum: bool = False
    episodes_per_task: int = 1
    round_length: int = 0
    """Tasks in a round of a list: a round has each row once, and a list has one family. 0 for a suite without rounds.
    """
    fits: Callable[[Task], bool] = lambda task: True
    """Whether a record can hold a task. Asked of those that are fed again: a worker's record says what they are."""

    def __post_init__(self) -> None:
        """Drops cursors of another suite or seed, or of other families: other tasks are at their indices."""
        facts, families = self.facts, tuple(self.families)
        same = facts.families == families
        facts.cursors = {
            family: (index, task_id)
            for family, (index, task_id) in facts.cursors.items()
            if same and index >= 0 and self.task_at(index).task_id == task_id
        }
        facts.families = families

    def find_next(self) -> None:
        """Find the next task of each family, which may require looking through all tasks that were fed. That is needed
        only once: the facts then hold the cursors, from which later states go on.
        """
        for family in self.families:
            self._next_of(family)  # also from a snapshot's cursor: a task may have been begun since, and goes first

    def due(self, now_ms: int) -> list[Task]:
        """The tasks to feed now, oldest retry first; none before there is a version to act with."""
        facts = self.facts
        if facts.version is None:
            return []
        oldest = [facts.outstanding.versions.oldest, facts.unlearned.versions.oldest]
        progress = Progress(
            len(facts.outstanding),
            len(facts.unlearned),
            min((version for version in oldest if version is not None), default=None),
            facts.version.version,
            facts.update,
            facts.version.update,
        )
        tasks: list[Task] = []
        for _ in range(self.admission.allowed(progress)):
            task = replace(self._next(), fed_at=now_ms, fed_version=facts.version.version)
            facts.see_task(task)
            tasks.append(task)
        return tasks

    def _next(self) -> Task:
        while self.facts.interrupted:
            again, task = next(iter(self.facts.interrupted.items()))
            if self.fits(task):
                return task
            del self.facts.interrupted[again]
        begun = next((family for family in self.families if self._begun(family)), None)
        if begun is not None:
            return self._next_of(begun)
        counts = (self.facts.fed_by, self.facts.tried, self.facts.succeeded)
        fed, tried, succeeded = ([count.get(name, 0) for name in self.families] for count in counts)
        return self._next_of(self.families[choose_family(fed, tried, succeeded, self.curriculum)])

    def _next_of(self, family: str) -> Task:
        """The first task of that family with an episode that was never fed. Families take turns in the suite."""
        cursor = self.facts.cursors.get(family)
        return self._move(family, self._last_fed(family) if cursor is None else cursor[0])

    def _move(self, family: str, index: int) -> Task:
        """Move the cursor to the first task from `index` on with an episode that was never fed, and return that."""
        while (number := self._next_number((task := self.task_at(index)).task_id)) > self.episodes_per_task:
            index += len(self.families)
        self.facts.cursors[family] = index, task.task_id
        return replace(task, task_id=episode_id(task.task_id, number))

    def _begun(self, family: str) -> bool:
        """Whether some but not all episodes of the family's next task were fed. Such a task goes first, so that the
        episodes of a group are played by similar policies."""
        cursor = self.facts.cursors.get(family)
        return (
            cursor is not None and self._is_known(cursor[1]) and self._next_number(cursor[1]) <= self.episodes_per_task
        )

    def _is_known(self, task_id: str) -> bool:
        """Whether any episode of the task is known to be fed."""
        return self._last_number(task_id) > 0

    def _last_number(self, task_id: str) -> int:
        """The number of the last of a task's episodes that is known to be fed; 0 for none."""
        numbers = range(self.episodes_per_task, 0, -1)
        return next((number for number in numbers if episode_id(task_id, number) in self.facts.fed), 0)

    def _next_number(self, task_id: str) -> int:
        """The number of the episode of a task to feed next; one more than it has where all are fed."""
        return next(self._left_out(task_id), self._last_number(task_id) + 1)

    def _left_out(self, task_id: str) -> Iterator[int]:
        """The numbers of a task's episodes that are not known to be fed though a later one is.

        A feeder that is killed while it feeds leaves such ones, as the episodes are in different partitions. None where
        records were deleted: they may have been of these.
        """
        if not self.facts.deleted:
            for number in range(1, self._last_number(task_id)):
                if episode_id(task_id, number) not in self.facts.fed:
                    yield number

    def _last_fed(self, family: str) -> int:
        """The index of the last task of the family that is known to be fed, across gaps of deleted records. Episodes
        that a kill left out on the way are to be fed again.

        Whether a last episode was left out, or was not to be fed under the settings of then, cannot be known.

        If none is known, the index of the first task, plus as many tasks as records were deleted.

        For a list, it is an index in the newest known round, so that rows added to the list join in that round and are
        not fed once for every earlier round. It is where that round begins. If records were deleted, which cannot be
        distinguished from added rows, it is the last known task of the round.
        """
        if self.round_length and (newest := self._newest_round()):
            return newest[-1] if self.facts.deleted else newest[0] // self.round_length * self.round_length
        first, step, deleted = self.families.index(family), len(self.families), self.facts.deleted
        last, gap, index = first + deleted * step, 0, first
        while gap <= deleted:
            task = self.task_at(index)
            if self._is_known(task.task_id):
                last, gap = index, 0
                for number in self._left_out(task.task_id):
                    again = episode_id(task.task_id, number)
                    self.facts.interrupted[again] = replace(task, task_id=again)
            else:
                gap += 1
            index += step
        return last

    def _newest_round(self) -> list[int]:
        """The indices of the tasks known to be fed in the last round of the list that has any.

        It looks across gaps of as many rounds as the deleted records fill, if the list has at most doubled since.
        """
        deleted, length = self.facts.deleted, self.round_length
        longest = 1 + 2 * deleted // length if deleted else 0
        newest, begin, gap = list[int](), 0, 0
        while gap <= longest:
            places = range(begin, begin + length)
            if known := [index for index in places if self._is_known(self.task_at(index).task_id)]:
                newest, gap = known, 0
            else:
                gap += 1
            begin += length
        return newest
