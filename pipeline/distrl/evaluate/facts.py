"""What a run's report is made of, and all that is computed of it once, for the page and for programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from distrl.evaluate import curves, policies
from distrl.tasks.survey import folded
from distrl.tasks.unsolved import Unsolved, unsolved
from distrl.types import Evaluation, LoggedTrajectory, ObjectRef, Outcome, Split, Trajectory, Update, Version


@dataclass(frozen=True)
class RunData:
    """What a report is made of.

    trajectories: the first record of each task id, in the order of the log. topic: their topic's full name.
    digests: sha256 of the final adapter, buffer, … by name. read: the bytes of an object, verified. agents: names, by
    sha256, of agents without weights that were evaluated. demonstrated: instructions of the demonstrations.
    """

    run: str
    seed: int
    topic: str
    trajectories: Sequence[LoggedTrajectory]
    versions: Sequence[Version]
    updates: Sequence[Update]
    evaluations: Sequence[Evaluation]
    setup_seconds: float
    train_seconds: float
    digests: Mapping[str, str]
    read: Callable[[ObjectRef], bytes]
    agents: Mapping[str, str] = field(default_factory=dict)
    demonstrated: Collection[str] = ()


@dataclass(frozen=True)
class Facts:
    """Everything computed once, for both files. before, after: held-out trajectories by version, first and last.

    held_out: the instructions of `after`, each once however often it was played; in_training: how many of them a
    training task or a demonstration of the run had. other_suites: held-out evaluations that are not compared, since
    they are of another suite than the first version's. by_policy: held-out success of everybody, versions and agents,
    on the suite that is compared. unsolved: tasks without a success, of training and of every evaluation.
    """

    before: tuple[int, list[Trajectory]] | None
    after: tuple[int, list[Trajectory]] | None
    curve: Sequence[curves.CurvePoint]
    lags: Sequence[int]
    reloads: Sequence[float]
    held_out: int
    in_training: int
    other_suites: int
    by_policy: policies.Scores
    unsolved: Sequence[Unsolved]


def facts_of(data: RunData) -> Facts:
    held_out = curves.evaluated(data.evaluations, Split.TEST)
    numbers = list(held_out)
    fed = {each.trajectory.task.instruction for each in data.trajectories}
    said = {folded(each) for each in (*fed, *data.demonstrated)}
    last = held_out[numbers[-1]] if numbers else []
    asked = {folded(each.task.instruction) for each in last}
    return Facts(
        before=(numbers[0], held_out[numbers[0]]) if numbers else None,
        after=(numbers[-1], held_out[numbers[-1]]) if numbers else None,
        curve=curves.learning_curve(data.evaluations, Split.VALIDATION, data.versions, data.updates, data.topic),
        lags=curves.policy_lags(data.trajectories, data.versions, data.updates, data.topic),
        reloads=curves.reload_seconds(data.trajectories, data.versions),
        held_out=len(asked),
        in_training=len(asked & said),
        other_suites=curves.of_other_suites(data.evaluations, Split.TEST),
        by_policy=policies.held_out(data.evaluations, last[0].task.suite if last else None),
        unsolved=unsolved((each.task, each.outcome) for each in _attempts(data)),
    )


def _attempts(data: RunData) -> Iterator[Trajectory]:
    """Every attempt once: training, then for each version or agent the first judged record of each task."""
    yield from (each.trajectory for each in data.trajectories)
    seen: set[tuple[int, str, str]] = set()
    for each in data.evaluations:
        played = each.trajectory
        agent = each.version_sha256 if each.version < 0 else ""
        key = each.version, agent, played.task_id
        if played.outcome in (Outcome.SUCCESS, Outcome.FAILURE) and key not in seen:
            seen.add(key)
            yield played


def success_of(side: tuple[int, list[Trajectory]] | None) -> float | None:
    scored = curves.score(side[1]) if side else None
    return scored.success if scored and scored.episodes else None
