"""The data of a run's report, and everything computed from it, for the page and for report.json."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distrl.broker.duplicates import first_evaluations
from distrl.evaluate import curves, policies
from distrl.evaluate.failures import FailedCondition, JudgedAttempt, by_condition
from distrl.tasks.list_report import folded
from distrl.tasks.unsolved import Unsolved, unsolved
from distrl.types import (
    Evaluation,
    LoggedTrajectory,
    LogPosition,
    ObjectRef,
    Split,
    Trajectory,
    Update,
    Version,
)


@dataclass(frozen=True)
class RunData:
    """The data of a report."""

    run: str
    seed: int
    topic: str
    """Full name of the trajectories topic."""
    trajectories: Sequence[LoggedTrajectory]
    """The first record of each task id, in the order of the log."""
    versions: Sequence[Version]
    updates: Sequence[Update]
    evaluations: Sequence[Evaluation]
    setup_seconds: float
    train_seconds: float
    digests: Mapping[str, str]
    """Name -> sha256 of the final adapter, buffer, …"""
    read: Callable[[ObjectRef], bytes]
    """The bytes of an object, verified."""
    agents: Mapping[str, str] = field(default_factory=dict)
    """sha256 -> name of evaluated agents without weights."""
    demonstrated: Collection[str] = ()
    """Instructions of the demonstrations."""
    evaluated_at: Mapping[tuple[int, str], LogPosition] = field(default_factory=dict)
    """(version, task id) -> position of its first evaluation."""


@dataclass(frozen=True)
class Facts:
    """What is computed for both report files."""

    before: tuple[int, list[Trajectory]] | None
    """The first version with held-out trajectories, and those of the tasks that the last one has played, too: an
    evaluation that is still going on has its short ones first."""
    after: tuple[int, list[Trajectory]] | None
    """The last one, and those of the same tasks."""
    played: int
    """Trajectories that were played to an end."""
    curve: Sequence[curves.CurvePoint]
    other_validations: int
    """Evaluations on validation tasks that the curve leaves out: of another suite than the first version's."""
    lags: Sequence[int]
    reloads: Sequence[float]
    """In s."""
    held_out: int
    """Distinct instructions of `after`."""
    in_training: int
    """How many of these a training task or a demonstration of the run had."""
    other_suites: int
    """Held-out evaluations that are not compared: of another suite than the first version's."""
    by_policy: policies.Scores
    """Held-out success of all versions and agents, on the compared suite."""
    unsolved: Sequence[Unsolved]
    """Tasks without a success, of training and of every evaluation."""
    failed: Sequence[FailedCondition]
    """Why the last version failed, by condition, on all held-out tasks that it has played."""


def facts_of(data: RunData) -> Facts:
    held_out = curves.evaluated(data.evaluations, Split.TEST)
    numbers = list(held_out)
    fed = {each.trajectory.task.instruction for each in data.trajectories}
    trained = {folded(each) for each in (*fed, *data.demonstrated)}
    last = held_out[numbers[-1]] if numbers else []
    before, after = of_same_tasks(held_out[numbers[0]], last) if numbers else ([], [])
    asked = {folded(each.task.instruction) for each in after}
    return Facts(
        before=(numbers[0], before) if numbers else None,
        after=(numbers[-1], after) if numbers else None,
        played=len(curves.played(data.trajectories)),
        curve=curves.learning_curve(
            data.evaluations, Split.VALIDATION, data.versions, data.updates, data.trajectories, data.topic
        ),
        other_validations=curves.of_other_suites(data.evaluations, Split.VALIDATION),
        lags=curves.policy_lags(data.trajectories, data.versions, data.updates, data.topic),
        reloads=curves.reload_seconds(data.trajectories, data.versions),
        held_out=len(asked),
        in_training=len(asked & trained),
        other_suites=curves.of_other_suites(data.evaluations, Split.TEST),
        by_policy=policies.held_out(data.evaluations, last[0].task.suite if last else None),
        unsolved=unsolved((each.task, each.outcome) for each in _attempts(data)),
        failed=by_condition(_positioned(data, numbers[-1], last)) if numbers else (),
    )


def of_same_tasks(one: list[Trajectory], other: list[Trajectory]) -> tuple[list[Trajectory], list[Trajectory]]:
    """The trajectories of either that are of tasks which the other has, too."""
    both = {each.task_id for each in one} & {each.task_id for each in other}
    of_one, of_other = ([each for each in some if each.task_id in both] for some in (one, other))
    return of_one, of_other


def _positioned(data: RunData, version: int, played: Iterable[Trajectory]) -> Iterator[JudgedAttempt]:
    """Trajectories that count for a version, with the positions of their records."""
    unknown = LogPosition("", -1, -1)
    for each in played:
        yield JudgedAttempt(each, version, data.evaluated_at.get((version, each.task_id), unknown))


def _attempts(data: RunData) -> Iterator[Trajectory]:
    """Every attempt once: training, then the evaluations that count and have a known outcome."""
    yield from (each.trajectory for each in data.trajectories)
    yield from (each.trajectory for each in first_evaluations(data.evaluations) if each.trajectory.outcome.is_known)


def success_of(side: tuple[int, list[Trajectory]] | None) -> float | None:
    return curves.score(side[1]).known if side else None
