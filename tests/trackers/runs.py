"""A small run's records, as topics would hold them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import factories
from distrl.trackers.points import RunPoints
from distrl.trackers.protocol import Point
from distrl.types import (
    Evaluation,
    Figures,
    Heartbeat,
    LoggedTrajectory,
    LogPosition,
    Outcome,
    Record,
    Split,
    Trajectory,
    Update,
    Watermark,
)

TOPIC = "distrl.r.trajectories"
VALIDATION_TASKS = 2


def points(*, recorded: bool = False, first: int = 0, caught_up: bool = True) -> RunPoints:
    def expected(split: Split) -> int:
        return VALIDATION_TASKS if split is Split.VALIDATION else 1_000

    run = RunPoints(TOPIC, expected, recorded=recorded, first=first)
    if caught_up:
        run.caught_up()
    return run


def line(u: int, offset: int, void: str = "", version: int = 0) -> Update:
    return Update(u, (Watermark(TOPIC, 0, offset),), "config", 1_000 * u, void=void, version=version)


def beat(u: int, **metrics: float) -> Heartbeat:
    """The learner's report after update `u`."""
    return Heartbeat("learner", "learner", 1_000 * u + 500, None, None, {"update": u + 1.0, **metrics})


def plays(tasks: int, evaluator: str = "evaluator-0") -> Heartbeat:
    """The report of an evaluator that was started with so many tasks."""
    return Heartbeat(evaluator, "evaluator", 0, None, None, {"evaluation_tasks": float(tasks)})


def figures(u: int, at: int = 0, **metrics: float) -> Figures:
    """The record of update `u`. at: when it was journalled, if not as its line says."""
    return Figures(u, at or 1_000 * u, 1_000 * u + 400, metrics)


def evaluated(
    version: int, task: str, outcome: Outcome, suite: str = "home", worker: str = "evaluator-0"
) -> Evaluation:
    asked = factories.task(task, split=Split.VALIDATION, suite=suite)
    played = factories.trajectory(asked, outcome=outcome, finished_at=10_000 * version, worker=worker)
    return Evaluation(version, "a" * 64, f"{version}-{task}", played)


def take(run: RunPoints, records: Iterable[Record | LoggedTrajectory]) -> None:
    for record in records:
        match record:
            case Update():
                run.update(record)
            case Heartbeat():
                run.heartbeat(record)
            case Figures():
                run.figures(record)
            case Evaluation():
                run.evaluation(record)
            case LoggedTrajectory():
                run.trajectory(record)


def logged(played: Sequence[Trajectory]) -> list[LoggedTrajectory]:
    return [LoggedTrajectory(LogPosition(TOPIC, 0, offset), each) for offset, each in enumerate(played)]


PLAYED = logged(
    [
        factories.trajectory("t-0", [factories.step(version=0)] * 2, finished_at=1),
        factories.trajectory("t-1", [factories.step(version=1)], outcome=Outcome.FAILURE, finished_at=2),
        factories.trajectory("t-1", [factories.step(version=1)] * 9, finished_at=3),
        factories.trajectory("t-2", [factories.step(version=1)] * 3, outcome=Outcome.INTERRUPTED, finished_at=4),
        factories.trajectory("t-3", [factories.step(version=2)], finished_at=5),
    ]
)
"""The third repeats the second one's task."""
LINES = [line(0, 0), line(1, 4, version=2), line(2, 5, version=2)]
BEATS = [beat(0, clone_loss=3.0), beat(0, clone_loss=3.0), beat(1, policy_loss=0.5), beat(2, policy_loss=0.25)]
EVALUATIONS = [
    evaluated(0, "e-0", Outcome.FAILURE),
    evaluated(0, "e-1", Outcome.SUCCESS),
    evaluated(0, "e-1", Outcome.FAILURE),
    evaluated(1, "e-0", Outcome.SUCCESS),
    evaluated(2, "e-0", Outcome.SUCCESS),
    evaluated(2, "e-1", Outcome.SUCCESS),
]
TOPICS: tuple[Sequence[Record | LoggedTrajectory], ...] = (LINES, PLAYED, BEATS, EVALUATIONS)


def all_points() -> list[Point]:
    run = points()
    for topic in TOPICS:
        take(run, topic)
    return run.ready()
