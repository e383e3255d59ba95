"""The points of a run, from the records of its log. Pure: no client, no clock, no tracker.

Each update has a point of the journal (what it took in, and how old that was) and one of the learner's report (losses,
entropies, the buffer); each evaluated version one for each suite and split. Points do not depend on the order in which
topics are read, but for when they are ready, and for what `RunPoints.evaluation` says.
"""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from distrl.broker.duplicates import IdSet
from distrl.evaluate.curves import BY_HAND, wilson
from distrl.telemetry.view import SUCCESS_WINDOW
from distrl.trackers.protocol import Axis, Point
from distrl.trackers.reports import LearnerReports
from distrl.types import Evaluation, Figures, Heartbeat, LoggedTrajectory, Outcome, Split, Trajectory, Update

JOURNAL: Final = "journal"
EVALUATOR: Final = "evaluator"
LONGEST_NAME: Final = 40
"""Characters of a suite's name in the name of a figure."""
DIGEST: Final = 6
"""Hexadecimal digits of its sha256, which distinguish it from another name that would be written alike."""

OF_A_WINDOW: Final = (
    "collection/window", "collection/without_outcome", "collection/steps", "collection/success", "lag/mean", "lag/max",
)  # fmt: skip
"""Figures of the trajectories that an update took in."""

Key = tuple[int, Split]
"""Version and split: one evaluation, which may be of tasks of several suites."""


@dataclass(frozen=True, slots=True)
class _Played:
    """What the points need of a trajectory."""

    offset: int
    outcome: Outcome
    steps: int
    oldest: int | None
    """The oldest version that acted; None where no policy did."""
    finished_at: int


@dataclass(slots=True)
class _Score:
    won: int = 0
    lost: int = 0
    unknown: int = 0
    at: int = 0
    """The end of the last episode, ms since the epoch."""


@dataclass(slots=True)
class _Evaluated:
    """A version on a split, until it has its points."""

    tasks: set[str] = field(default_factory=set)
    own: int = 0
    """How many of them the evaluator played, not `evaluate --versions`."""
    evaluators: set[str] = field(default_factory=set)
    """Names of those that played, as heartbeats have them."""
    suites: dict[str, _Score] = field(default_factory=lambda: defaultdict(_Score))

    @property
    def by_hand(self) -> bool:
        """Whether some were asked for by `evaluate --versions`, where a person chooses how many."""
        return self.own < len(self.tasks)

    def add(self, played: Trajectory) -> None:
        """The first record of a task counts."""
        task = f"{played.task.suite}/{played.task_id}"
        if task in self.tasks:
            return
        self.tasks.add(task)
        self.own += not played.worker.endswith(BY_HAND)
        self.evaluators.add(played.worker.removesuffix(BY_HAND))
        score = self.suites[played.task.suite]
        score.won += played.outcome is Outcome.SUCCESS
        score.lost += played.outcome is Outcome.FAILURE
        score.unknown += not played.outcome.is_known
        score.at = max(score.at, played.finished_at)


class RunPoints:
    """Takes the records of a run, each topic in its order; `ready` gives the points that are whole."""

    def __init__(self, topic: str, expected: Callable[[Split], int], *, recorded: bool = False, first: int = 0) -> None:
        """topic: full name of the trajectories topic. expected: tasks of a whole evaluation on a split, as the settings
        say: an evaluator may have been started with others, and reports how many. recorded: whether the run has the
        topic of figures. first: offset of the first trajectory that the log still has. An update that folded earlier
        ones gets no figures of its window, as they would differ from those that it had when all were there.
        """
        self._topic, self._expected, self._first = topic, expected, first
        self._marked = 0
        """Offset up to which the update before folded trajectories."""
        self._played: deque[_Played] = deque()
        """Trajectories that no update has folded yet."""
        self._read = 0
        """Offset after the last trajectory that was read."""
        self._seen = IdSet()
        self._updates: deque[Update] = deque()
        """Updates whose trajectories are not all read yet."""
        self._total = 0
        self._recent: deque[bool] = deque(maxlen=SUCCESS_WINDOW)
        self._journalled_at: int | None = None
        self._reports = LearnerReports(recorded=recorded)
        self._asked: dict[str, int] = {}
        """Evaluator -> tasks of each of its evaluations, as it reports."""
        self._caught_up = False
        self._going_on: dict[Key, _Evaluated] = {}
        self._whole: dict[Split, dict[int, frozenset[str]]] = defaultdict(dict)
        """Version -> its tasks, of evaluations that have their points, in their order: what comes later does not
        count."""
        self._order: dict[Split, list[int]] = defaultdict(list)
        """Those versions, ascending."""
        self._alike: dict[Split, Counter[frozenset[str]]] = defaultdict(Counter)
        """How many of them have the same tasks."""
        self._tasks: dict[frozenset[str], frozenset[str]] = {}
        """Each set of tasks once, as most versions have the same."""
        self._ready: list[Point] = []

    def ready(self) -> list[Point]:
        """The points that have become whole since the last call."""
        while self._updates and self._mark(self._updates[0]) <= self._read:
            self._ready.append(self._of_update(self._updates.popleft()))
        found, self._ready = [*self._ready, *self._reports.taken()], []
        return found

    def read_to(self, offset: int) -> None:
        """All trajectories before `offset` were read, readable or not."""
        self._read = max(self._read, offset)

    def trajectory(self, logged: LoggedTrajectory) -> None:
        record = logged.trajectory
        self.read_to(logged.position.offset + 1)
        if self._seen.add(record.task_id):
            oldest = min((step.version for step in record.steps), default=None) if not record.is_expert else None
            at = logged.position.offset
            self._played.append(_Played(at, record.outcome, len(record.steps), oldest, record.finished_at))

    def update(self, line: Update) -> None:
        """line: of the journal. A line that makes others void is no update; an update that is computed again has the
        same step again."""
        if line.void:
            return
        self._updates.append(line)
        self._reports.journalled(line)

    def heartbeat(self, beat: Heartbeat) -> None:
        self._reports.heartbeat(beat)
        tasks = beat.metrics.get("evaluation_tasks", 0.0) if beat.role == EVALUATOR else 0.0
        if math.isfinite(tasks) and tasks >= 1:
            self._asked[beat.process] = int(tasks)
            if self._caught_up:  # an old report says nothing of a version that is evaluated now
                self._end_whole()

    def caught_up(self) -> None:
        """Heartbeats were read up to the present: where no evaluator has reported, the settings say how many tasks an
        evaluation has."""
        self._caught_up = True
        self._end_whole()

    def figures(self, record: Figures) -> None:
        self._reports.figures(record)

    def quiet(self) -> None:
        """Figures and heartbeats were read and had nothing more, for now."""
        self._reports.quiet()

    def ended(self) -> None:
        """Nothing more is read: an evaluation with as many tasks as planned has ended."""
        self._reports.ended()
        for split in Split:
            going_on = self._of(split).items()
            self._end([key for key, each in going_on if len(each.tasks) >= self._planned(each, split)], split)

    def evaluation(self, record: Evaluation) -> None:
        """A version has one point for each suite. They are ready once the version has as many tasks as its evaluator
        reports, or the settings say where no evaluator reports. Where a person has chosen the number of tasks, they are
        ready once the tasks are those of the last complete version. In any case they are ready when evaluations of the
        next version come, unless the version has only a part of the tasks of the one before: then it waits for the
        others, as short episodes end first and are more often successes.

        Once the evaluator has played all of its own tasks, those that a person asks for do not count, so that a late
        start gives the same point. A late start may give another point where the evaluator had another number of tasks
        than the settings say now, as a start reads evaluations before heartbeats, or where the evaluator itself was
        started again with more.
        """
        if record.version < 0:
            return  # an agent without weights: no step of learning
        split = record.trajectory.task.split
        key, whole = (record.version, split), self._whole[split]
        if record.version in whole:
            return
        if key not in self._going_on:
            self._end([other for other in self._of(split) if other < record.version], split)
        found = self._going_on.setdefault(key, _Evaluated())
        if found.own >= self._planned(found, split) and record.trajectory.worker.endswith(BY_HAND):
            return
        found.add(record.trajectory)
        if self._is_whole(found, split):
            self._evaluated(key)

    def _is_whole(self, found: _Evaluated, split: Split) -> bool:
        count, planned = len(found.tasks), self._planned(found, split)
        if found.by_hand:
            return count >= planned and found.tasks == next(reversed(self._whole[split].values()), frozenset[str]())
        return count == planned and self._caught_up

    def _end_whole(self) -> None:
        for key, found in sorted(self._going_on.items()):
            if self._is_whole(found, key[1]):
                self._evaluated(key)

    def _planned(self, found: _Evaluated, split: Split) -> int:
        """Tasks of an evaluation: the most that those report who play it, as another evaluator may run no more."""
        if split is not Split.VALIDATION:
            return self._expected(split)
        asked = (self._asked[name] for name in found.evaluators if name in self._asked)
        return max(asked, default=self._expected(split))

    def _of(self, split: Split) -> dict[int, _Evaluated]:
        """Version -> its evaluation on a split, of those without points."""
        return {version: each for (version, other), each in self._going_on.items() if other is split}

    def _end(self, versions: Iterable[int], split: Split) -> None:
        """Give these versions their points, but for those with a part of the tasks of the version before, where no
        other one stopped there, as in `curves.unfinished`. Looks only at these versions and their neighbours."""
        tasks = {version: frozenset(self._going_on[version, split].tasks) for version in versions}
        alike = Counter(tasks.values())
        for version, own in sorted(tasks.items()):
            place = bisect_left(order := self._order[split], version)
            before = self._whole[split][order[place - 1]] if place else frozenset[str]()
            alone = alike[own] + self._alike[split][own] == 1
            if not (own < before and alone):
                self._evaluated((version, split))

    def _evaluated(self, key: Key) -> None:
        (version, split), found = key, self._going_on.pop(key)
        tasks = self._whole[split][version] = self._tasks.setdefault(own := frozenset(found.tasks), own)
        insort(self._order[split], version)
        self._alike[split][tasks] += 1
        for suite, score in sorted(found.suites.items()):
            known = score.won + score.lost
            if not known:
                continue
            low, high = wilson(score.won, known)
            group = f"evaluation/{plain_name(suite)}/{split.value}"
            values = {
                f"{group}/success": score.won / known,
                f"{group}/low": low,
                f"{group}/high": high,
                f"{group}/episodes": float(known),
                f"{group}/without_outcome": float(score.unknown),
            }
            self._ready.append(Point(group, Axis.VERSION, version, score.at, values))

    def _mark(self, update: Update) -> int:
        return max((mark.offset for mark in update.watermarks if mark.topic == self._topic), default=0)

    def _of_update(self, update: Update) -> Point:
        window, is_whole, self._marked = list[_Played](), self._marked >= self._first, self._mark(update)
        while self._played and self._played[0].offset < self._mark(update):
            window.append(self._played.popleft())
        self._total += len(window)
        outcomes = Counter(each.outcome for each in window)
        known = outcomes[Outcome.SUCCESS] + outcomes[Outcome.FAILURE]
        self._recent.extend(each.outcome is Outcome.SUCCESS for each in window if each.outcome.is_known)
        values = {
            "collection/trajectories": float(self._total),
            "collection/window": float(len(window)),
            "collection/without_outcome": float(len(window) - known),
            "update/newest_version": float(update.version),
        }
        if window:
            values["collection/steps"] = sum(each.steps for each in window) / len(window)
        if known:
            values["collection/success"] = outcomes[Outcome.SUCCESS] / known
        if self._recent:
            values["collection/success_recent"] = sum(self._recent) / len(self._recent)
        if self._journalled_at is not None:
            values["update/seconds"] = max(0, update.journalled_at - self._journalled_at) / 1000
        lags = [max(0, update.version - each.oldest) for each in window if each.oldest is not None]
        if lags:
            values |= {"lag/mean": sum(lags) / len(lags), "lag/max": float(max(lags))}
        self._journalled_at = update.journalled_at
        for name in self._not_known(is_whole):
            values.pop(name, None)
        return Point(JOURNAL, Axis.UPDATE, update.u, update.journalled_at, values)

    def _not_known(self, is_whole: bool) -> Iterator[str]:
        """Names of the figures whose records the log no longer has. is_whole: the log has the whole window."""
        if self._first:
            yield "collection/trajectories"
        if self._first and len(self._recent) < SUCCESS_WINDOW:
            yield "collection/success_recent"
        if not is_whole:
            yield from OF_A_WINDOW


def plain_name(name: str) -> str:
    """A name from a record, which may hold anything, as one that every tracker takes: with a digest if it is altered.

    `web-shop` and `web.shop` have figures of their own.
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)[:LONGEST_NAME]
    if plain and plain == name:
        return plain
    digest = hashlib.sha256(name.encode()).hexdigest()[:DIGEST]
    return f"{plain[: LONGEST_NAME - DIGEST - 1]}_{digest}"
