"""Statistics of a run's records. Pure: records in, numbers out; no clock, no client.

Definitions
- success: the share of SUCCESS among the episodes with a known outcome. Interrupted and unknown ones are counted apart.
- lag of a trajectory: (the newest version when the update that first folds it was journalled) − (the oldest version
  among its steps). 0 is on-policy. It says how old data is when it first enters learning; replay uses it again later.
- reload of version v by worker w: the time from v's publication to the first step that w chose with it. Only workers
  that were in an episode at the publication count, so that a worker that was down does not count as a slow reload.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from distrl.broker.duplicates import first_evaluations
from distrl.types import Evaluation, LoggedTrajectory, Outcome, Split, Trajectory, Update, Version

BY_HAND = "-by-hand"
"""Suffix of the evaluator's name in `evaluate --versions`, where a person chooses the number of tasks."""
Z_95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class SuccessRate:
    """Success with its 95 % Wilson interval."""

    episodes: int
    """With a known outcome."""
    successes: int
    others: int = 0
    """Episodes without a known outcome."""

    @property
    def success(self) -> float:
        return self.successes / self.episodes if self.episodes else 0.0

    @property
    def known(self) -> float | None:
        """Success; None where no outcome is known."""
        return self.success if self.episodes else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.successes, self.episodes)

    def as_text(self, decimals: int = 1) -> tuple[str, str]:
        """Success and its interval in per cent, for people; "-" for each where no outcome is known."""
        if not self.episodes:
            return "-", "-"
        low, high = self.interval
        return f"{self.success:.{decimals}%}", f"{low:.{decimals}%} to {high:.{decimals}%}"

    def __str__(self) -> str:
        """For people, with the number of episodes without an outcome."""
        success, interval = self.as_text()
        known = f"{self.successes} of {self.episodes} = {success} (95 %: {interval})" if self.episodes else success
        return known + (f", {self.others} without an outcome" if self.others or not self.episodes else "")


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Success of one version against its cost."""

    version: int
    trajectories: int
    """Learned from when it was published."""
    seconds: float
    """From the publication of the first version to its own."""
    score: SuccessRate
    unfinished: bool = False
    """Whether its evaluation was still going on: tasks that end soon come first, and those are rather successes."""


@dataclass(frozen=True, slots=True)
class FirstFold:
    """The update that first folds a trajectory."""

    update: int
    newest: int
    """The newest version when it was journalled."""


def wilson(successes: int, trials: int, z: float = Z_95) -> tuple[float, float]:
    """Wilson score interval of a share; (0, 1) without trials."""
    if trials == 0:
        return (0.0, 1.0)
    share = successes / trials
    spread = z * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    middle, scale = share + z * z / (2 * trials), 1 + z * z / trials
    # The share is inside mathematically; rounding would put it outside at 0 and 1.
    return (min(share, max(0.0, (middle - spread) / scale)), max(share, min(1.0, (middle + spread) / scale)))


def score(trajectories: Iterable[Trajectory]) -> SuccessRate:
    outcomes = Counter(trajectory.outcome for trajectory in trajectories)
    won, lost = outcomes[Outcome.SUCCESS], outcomes[Outcome.FAILURE]
    return SuccessRate(won + lost, won, outcomes.total() - won - lost)


def first_of_each(trajectories: Iterable[LoggedTrajectory]) -> list[LoggedTrajectory]:
    """The first record of each task id, in the order of the log."""
    seen: dict[str, LoggedTrajectory] = {}
    for logged in trajectories:
        seen.setdefault(logged.trajectory.task_id, logged)
    return list(seen.values())


def evaluated(evaluations: Iterable[Evaluation], split: Split) -> dict[int, list[Trajectory]]:
    """Published version -> its trajectories on `split`, the first of each task, versions ascending.

    Versions are compared on one suite: that of most evaluations of the lowest version, whichever phone was first.
    """
    found: dict[int, list[Trajectory]] = defaultdict(list)
    for evaluation in first_evaluations(_by_suite(evaluations, split)[0]):
        found[evaluation.version].append(evaluation.trajectory)
    return {version: found[version] for version in sorted(found)}


def of_other_suites(evaluations: Iterable[Evaluation], split: Split) -> int:
    """How many evaluations `evaluated` leaves out because they are of another suite."""
    return len(_by_suite(evaluations, split)[1])


def _by_suite(evaluations: Iterable[Evaluation], split: Split) -> tuple[list[Evaluation], list[Evaluation]]:
    """The evaluations of the compared suite, and the others."""
    found = [each for each in evaluations if each.trajectory.task.split is split and each.version >= 0]
    lowest = min((each.version for each in found), default=None)
    of_lowest = Counter(each.trajectory.task.suite for each in found if each.version == lowest)
    suite = min(of_lowest, key=lambda name: (-of_lowest[name], name), default="")
    compared = [each for each in found if each.trajectory.task.suite == suite]
    return compared, [each for each in found if each.trajectory.task.suite != suite]


def by_family(trajectories: Iterable[Trajectory]) -> dict[str, SuccessRate]:
    """Family -> score, families in alphabetical order."""
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        groups[trajectory.task.family].append(trajectory)
    return {family: score(groups[family]) for family in sorted(groups)}


def learning_curve(
    evaluations: Iterable[Evaluation],
    split: Split,
    versions: Sequence[Version],
    updates: Sequence[Update],
    trajectories: Iterable[LoggedTrajectory],
    topic: str,
) -> list[CurvePoint]:
    """Success on `split` of every evaluated version, ascending. trajectories: the first record of each task id. topic:
    full name of their topic."""
    published = {version.version: version for version in versions}
    began = min((version.published_at for version in versions), default=0)
    folded = _Highest(_folded_offsets(updates, topic))
    learned = sorted(each.position.offset for each in played(trajectories))
    by_version = evaluated(evaluations, split)
    going_on = unfinished({number: [each.task_id for each in played] for number, played in by_version.items()})
    return [
        CurvePoint(
            number,
            bisect_left(learned, folded.until(published[number].update) or 0),
            (published[number].published_at - began) / 1000,
            score(evaluated_on),
            number in going_on,
        )
        for number, evaluated_on in by_version.items()
        if number in published
    ]


def played(trajectories: Iterable[LoggedTrajectory]) -> list[LoggedTrajectory]:
    """Those that were played to an end, as an update learns from: an interrupted task is fed again under another id."""
    return [each for each in trajectories if each.trajectory.outcome is not Outcome.INTERRUPTED]


def unfinished(task_ids: Mapping[int, Iterable[str]]) -> set[int]:
    """The versions that have played a part of the tasks of the version before, where no other one stopped there: with
    fewer tasks asked for (evaluate.validation_episodes), all later ones do. task_ids: of each version, those it
    played."""
    tasks = {number: frozenset(task_ids[number]) for number in sorted(task_ids)}
    alike = Counter(tasks.values())
    found, before = set[int](), frozenset[str]()
    for number, own in tasks.items():
        if own < before and alike[own] == 1:
            found.add(number)
        else:
            before = own
    return found


def moving_success(trajectories: Sequence[LoggedTrajectory], window: int) -> list[tuple[int, float]]:
    """(trajectories that were played to an end so far, success among the last `window` with a known outcome), from the
    first full window on."""
    outcomes = [logged.trajectory.outcome for logged in played(trajectories)]
    known = [(so_far, each) for so_far, each in enumerate(outcomes, 1) if each.is_known]
    won = [each is Outcome.SUCCESS for _, each in known]
    return [(known[end - 1][0], sum(won[end - window : end]) / window) for end in range(window, len(won) + 1)]


def policy_lags(
    trajectories: Iterable[LoggedTrajectory], versions: Sequence[Version], updates: Sequence[Update], topic: str
) -> list[int]:
    """The lag of each trajectory that an update folds and that has steps, in the order of the log."""
    acted = [each for each in trajectories if each.trajectory.steps]
    folds = first_folds([each.position.offset for each in acted], versions, updates, topic)
    return [
        fold.newest - min(step.version for step in each.trajectory.steps)
        for each, fold in zip(acted, folds, strict=True)
        if fold is not None
    ]


def first_folds(
    offsets: Iterable[int], versions: Iterable[Version], updates: Iterable[Update], topic: str
) -> list[FirstFold | None]:
    """The update that first folds each offset of `topic`; None for one that none has folded yet."""
    folded = _folded_offsets(updates, topic)
    bounds = [offset for _, offset in folded]
    newest = _Highest((version.update, version.version) for version in versions)
    found: list[FirstFold | None] = []
    for offset in offsets:
        at = bisect_right(bounds, offset)
        if at == len(bounds):
            found.append(None)
            continue
        update = folded[at][0]
        found.append(FirstFold(update, newest.until(update - 1) or 0))
    return found


def reload_seconds(trajectories: Iterable[LoggedTrajectory], versions: Sequence[Version]) -> list[float]:
    """Reload times in s of every version by every worker that used it and was in an episode at its publication."""
    first_use: dict[tuple[str, int], int] = {}
    busy: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for logged in trajectories:
        trajectory = logged.trajectory
        busy[trajectory.worker].append((trajectory.started_at, trajectory.finished_at))
        for step in trajectory.steps:
            key = (trajectory.worker, step.version)
            first_use[key] = min(first_use.get(key, step.at), step.at)
    published = {version.version: version.published_at for version in versions}
    latest_end = {worker: _Highest(episodes) for worker, episodes in busy.items()}

    def was_in_episode(worker: str, at: int) -> bool:
        end = latest_end[worker].until(at)
        return end is not None and at <= end

    return [
        max(0, at - published[version]) / 1000
        for (worker, version), at in sorted(first_use.items())
        if version in published and was_in_episode(worker, published[version])
    ]


def percentile(values: Sequence[float], share: float) -> float:
    """The value at `share` (0 to 1) by linear interpolation; 0 without values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def per_minute(trajectories: int, seconds: float) -> float:
    return trajectories * 60 / seconds if seconds > 0 else 0.0


class _Highest:
    """Answers, for pairs (key, value), what the highest value is among the keys up to a given one."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(pairs)
        self._keys = [key for key, _ in ordered]
        self._highest = list(accumulate((value for _, value in ordered), max))

    def until(self, key: int) -> int | None:
        """None where no pair has a key so low."""
        count = bisect_right(self._keys, key)
        return self._highest[count - 1] if count else None


def _folded_offsets(updates: Iterable[Update], topic: str) -> list[tuple[int, int]]:
    """(u, offset up to which update u folds `topic`), ascending in u."""
    marks: Mapping[int, int] = {
        update.u: sum(mark.offset for mark in update.watermarks if mark.topic == topic) for update in updates
    }
    return sorted(marks.items())
