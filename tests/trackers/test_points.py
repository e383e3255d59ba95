"""Which figures follow from a log, and that they do not depend on when each topic is read."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import factories
import pytest
from distrl.evaluate.curves import BY_HAND
from distrl.telemetry.view import SUCCESS_WINDOW
from distrl.trackers.points import RunPoints, plain_name
from distrl.trackers.progress import Progress
from distrl.trackers.protocol import GROUPS, Axis, Point
from distrl.trackers.reports import MOST_AHEAD
from distrl.types import Evaluation, Heartbeat, LoggedTrajectory, Outcome, Record
from hypothesis import given
from hypothesis import strategies as st

from tests.trackers.runs import (
    LINES,
    PLAYED,
    TOPICS,
    all_points,
    beat,
    evaluated,
    line,
    logged,
    plays,
    points,
    take,
)

TraceFunction = Callable[[FrameType, str, Any], Any]


def of(source: str, step: int) -> Point:
    (found,) = [each for each in all_points() if (each.source, each.step) == (source, step)]
    return found


def test_an_update_says_what_it_took_in_and_how_old_that_was() -> None:
    assert of("journal", 1) == Point(
        "journal",
        Axis.UPDATE,
        1,
        1_000,
        {
            "collection/trajectories": 3.0,  # the second record of a task is none
            "collection/window": 3.0,
            "collection/without_outcome": 1.0,
            "collection/steps": 2.0,
            "collection/success": 0.5,
            "collection/success_recent": 0.5,
            "update/newest_version": 2.0,
            "update/seconds": 1.0,
            "lag/mean": pytest.approx(4 / 3),
            "lag/max": 2.0,
        },
    )
    assert of("journal", 2).values["collection/success_recent"] == pytest.approx(2 / 3)


def test_a_window_of_nothing_has_no_success_and_no_lag() -> None:
    assert of("journal", 0).values == {
        "collection/trajectories": 0.0,
        "collection/window": 0.0,
        "collection/without_outcome": 0.0,
        "update/newest_version": 0.0,
    }


def test_of_a_log_whose_beginning_was_deleted_no_figure_is_other_than_it_was() -> None:
    """A follower that begins late says less of the early updates, and nothing else."""
    ends = (Outcome.SUCCESS, Outcome.FAILURE)
    records = logged([factories.trajectory(f"t-{n}", outcome=ends[n % 3 == 0]) for n in range(4 * SUCCESS_WINDOW)])
    lines = [line(u, (u + 1) * SUCCESS_WINDOW) for u in range(4)]
    whole, late = points(), points(first=SUCCESS_WINDOW + 7)
    take(whole, [*records, *lines])
    take(late, [*records[SUCCESS_WINDOW + 7 :], *lines])
    before, after = whole.ready(), late.ready()
    assert [each.step for each in after] == [each.step for each in before] == [0, 1, 2, 3]
    for one, other in zip(before, after, strict=True):
        assert other.values.items() <= one.values.items()
    assert [sorted(one.values.keys() - other.values.keys()) for one, other in zip(before, after, strict=True)][2:] == [
        ["collection/trajectories"]
    ] * 2
    assert not any(name.startswith(("collection", "lag")) for each in after[:2] for name in each.values)


def test_every_figure_is_in_a_group_of_its_axis() -> None:
    found = {(name.split("/")[0], point.axis) for point in all_points() for name in point.values}
    assert found == set(GROUPS.items())


def test_losses_are_those_of_the_learners_first_report_of_an_update() -> None:
    assert of("learner", 0) == Point("learner", Axis.UPDATE, 0, 500, {"learner/clone_loss": 3.0})
    assert of("learner", 2).values == {"learner/policy_loss": 0.25}


def test_a_version_has_its_success_with_the_interval_once_its_evaluation_is_whole() -> None:
    whole = of("evaluation/home/validation", 0)
    assert whole.axis is Axis.VERSION
    assert whole.values["evaluation/home/validation/success"] == 0.5
    low, high = (whole.values[f"evaluation/home/validation/{name}"] for name in ("low", "high"))
    assert (low, high) == (pytest.approx(0.0945, abs=1e-3), pytest.approx(0.9055, abs=1e-3))  # Wilson, 1 of 2
    assert whole.values["evaluation/home/validation/episodes"] == 2.0
    # One that was broken off is none, and the last one is not whole before it has all tasks.
    assert [each.step for each in all_points() if each.source == "evaluation/home/validation"] == [0, 2]
    run = points()
    run.evaluation(evaluated(0, "e-0", Outcome.SUCCESS))
    run.ended()
    assert run.ready() == []


def by_hand(version: int, *numbers: int) -> list[Evaluation]:
    """Of these tasks, the last of which is a failure."""
    outcomes = [*[Outcome.SUCCESS] * (len(numbers) - 1), Outcome.FAILURE]
    return [
        evaluated(version, f"e-{n}", each, worker=f"somebody{BY_HAND}")
        for n, each in zip(numbers, outcomes, strict=True)
    ]


def episodes(run: RunPoints) -> list[tuple[int, float]]:
    """The versions that have a point by now, each with its episodes."""
    return [(each.step, each.values[f"{each.source}/episodes"]) for each in run.ready()]


def test_an_evaluation_of_more_tasks_than_the_settings_say_is_no_point_of_those_that_ended_first() -> None:
    run = points()
    take(run, by_hand(0, 3, 1, 0, 2))
    assert episodes(run) == []
    take(run, by_hand(1, 0, 3))
    assert episodes(run) == [(0, 4.0)]
    take(run, by_hand(1, 1, 2))
    assert episodes(run) == [(1, 4.0)], "it has the tasks of the one before"


def test_an_evaluation_of_more_tasks_that_no_other_follows_is_whole_at_the_end_of_the_log() -> None:
    run = points()
    take(run, by_hand(0, 0, 1, 2))
    run.ended()
    assert episodes(run) == [(0, 3.0)]


def test_an_evaluation_that_was_broken_off_is_a_point_once_it_is_finished_or_another_one_stopped_there() -> None:
    """As the report counts: with fewer tasks asked for, all later ones have fewer."""
    run = points()
    take(run, [*by_hand(0, 0, 1, 2, 3), *by_hand(1, 0, 1, 2), *by_hand(2, 1), *by_hand(3, 0, 1, 2)])
    assert episodes(run) == [(0, 4.0)]
    take(run, by_hand(4, 0))
    assert episodes(run) == [(1, 3.0), (3, 3.0)]
    take(run, by_hand(2, 0, 2))
    assert episodes(run) == [(2, 3.0)]


def by_evaluator(version: int, *numbers: int, name: str = "evaluator-0") -> list[Evaluation]:
    return [evaluated(version, f"e-{number}", Outcome.SUCCESS, worker=name) for number in numbers]


def test_an_evaluators_evaluation_has_as_many_tasks_as_it_reports_and_not_as_the_settings_say() -> None:
    run = points()
    take(run, [plays(4), *by_evaluator(0, 0, 1, 2)])
    assert episodes(run) == []
    take(run, [*by_evaluator(0, 3), plays(1), *by_evaluator(1, 0)])
    assert episodes(run) == [(0, 4.0), (1, 1.0)], "it was started again with fewer"
    take(run, [plays(3, "another"), *by_evaluator(2, 0, 1, name="another")])
    run.ended()
    assert episodes(run) == []


@pytest.mark.parametrize("follow", [True, False])
def test_an_evaluator_that_runs_no_more_says_nothing_of_what_another_one_plays(follow: bool) -> None:
    run = points(caught_up=False)
    take(run, [*by_evaluator(0, 0, 1, 2), plays(4, "gone"), plays(3)])
    run.caught_up() if follow else run.ended()
    assert episodes(run) == [(0, 3.0)]


def test_of_evaluators_that_play_one_version_the_one_with_the_most_tasks_counts() -> None:
    run = points()
    take(run, [plays(2), plays(3, "another"), *by_evaluator(0, 0), *by_evaluator(0, 1, name="another")])
    assert episodes(run) == []
    take(run, by_evaluator(0, 2, name="another"))
    assert episodes(run) == [(0, 3.0)]


@pytest.mark.parametrize("caught_up", [True, False])
def test_what_a_person_asks_for_of_a_version_that_was_evaluated_counts_for_no_tracker_whenever_it_was_started(
    caught_up: bool,
) -> None:
    run = points(caught_up=caught_up)
    take(run, [*by_evaluator(0, 0, 1), *by_hand(0, 0, 1, 2, 3), *by_evaluator(1, 0, 1)])
    run.caught_up()
    assert episodes(run) == [(0, 2.0), (1, 2.0)]


def test_a_late_start_takes_no_evaluation_for_whole_before_it_has_read_what_the_evaluator_reports() -> None:
    run = points(caught_up=False)
    take(run, [*by_evaluator(0, 0, 1), *by_evaluator(0, 2), *by_evaluator(1, 0, 1)])
    assert episodes(run) == [(0, 3.0)], "the next one has begun"
    take(run, [plays(3)])
    run.caught_up()
    assert episodes(run) == []
    take(run, by_evaluator(1, 2))
    assert episodes(run) == [(1, 3.0)]


def test_a_late_start_ends_no_evaluation_by_a_report_of_yesterday() -> None:
    run = points(caught_up=False)
    take(run, [*by_evaluator(0, 0, 1), plays(2), plays(3)])
    run.caught_up()
    assert episodes(run) == []
    take(run, by_evaluator(0, 2))
    assert episodes(run) == [(0, 3.0)]


def test_where_no_evaluator_has_reported_the_settings_say_how_many_tasks_an_evaluation_has() -> None:
    run = points(caught_up=False)
    take(run, [*by_evaluator(0, 0, 1)])
    assert episodes(run) == []
    run.caught_up()
    assert episodes(run) == [(0, 2.0)]


def lines_run(versions: int) -> int:
    """Lines of code that run for so many versions of two tasks, of which the first one was broken off."""
    run, count = points(caught_up=False), 0
    take(run, [*by_hand(0, 0, 1), *by_hand(1, 0)])

    def counted(frame: FrameType, event: str, _: object) -> TraceFunction:
        nonlocal count
        count += event == "line"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        for version in range(2, versions):
            take(run, by_evaluator(version, 0, 1))
    finally:
        sys.settrace(before)
    assert len(run.ready()) == versions - 2, "but for the one that was broken off and the last one"
    return count


def test_a_broken_off_evaluation_makes_no_later_one_dearer() -> None:
    assert lines_run(200) < 2.5 * lines_run(100)


def test_an_evaluation_of_several_suites_is_whole_when_it_has_the_tasks_of_all_of_them() -> None:
    run = points()
    take(run, [evaluated(3, "e-0", Outcome.SUCCESS, suite="web"), evaluated(3, "e-1", Outcome.FAILURE)])
    assert [(each.source, each.step, each.values[f"{each.source}/success"]) for each in run.ready()] == [
        ("evaluation/home/validation", 3, 0.0),
        ("evaluation/web/validation", 3, 1.0),
    ]
    take(run, [evaluated(3, "e-2", Outcome.SUCCESS, suite="web"), evaluated(4, "e-0", Outcome.SUCCESS)])
    assert run.ready() == [], "what is evaluated afterwards does not count"


@given(st.data())
def test_points_do_not_depend_on_the_order_in_which_topics_are_read(data: st.DataObject) -> None:
    left, run = [list(topic) for topic in TOPICS], points()
    found: list[Point] = []
    while any(left):
        topic = data.draw(st.sampled_from([each for each in left if each]))
        record: Record | LoggedTrajectory = topic.pop(0)
        take(run, [record])
        found += run.ready()
    key = lambda point: (point.source, point.step)  # noqa: E731
    assert sorted(found, key=key) == sorted(all_points(), key=key)


def test_each_trajectory_counts_once_where_updates_became_void() -> None:
    run = points()
    take(run, [*PLAYED, *LINES, line(1, 0, void="the log lost records"), line(1, 5, version=2), line(2, 5)])
    windows = [(point.step, point.values["collection/window"]) for point in run.ready()]
    assert windows == [(0, 0.0), (1, 3.0), (2, 1.0), (1, 0.0), (2, 0.0)]


def test_a_record_that_cannot_be_read_holds_no_update_up() -> None:
    run = points()
    take(run, LINES)
    run.read_to(5)
    assert [point.step for point in run.ready()] == [0, 1, 2]


def test_what_a_stranger_reports_makes_no_figure_and_blocks_none() -> None:
    run = points()
    strange = [math.nan, math.inf, -1.0, 0.5, 1e300]
    take(run, [Heartbeat("x", "learner", 0, None, None, {"update": each, "policy_loss": 1.0}) for each in strange])
    take(run, [beat(u, policy_loss=1.0) for u in range(10_000, 10_000 + 2 * MOST_AHEAD)])
    take(run, [Heartbeat("w", "worker", 0, None, None, {"update": 1.0, "policy_loss": 1.0})])
    take(run, [line(0, 0), beat(0, policy_loss=2.0, value_loss=math.nan, **{"../../etc": 1.0})])
    assert [point.values for point in run.ready() if point.source == "learner"] == [{"learner/policy_loss": 2.0}]


def test_a_report_of_an_update_that_the_log_lost_is_not_that_of_the_one_computed_in_its_place() -> None:
    lost, real = beat(1, policy_loss=9.0), replace(beat(1, policy_loss=0.5), at=8_000)
    again = replace(line(1, 0), journalled_at=7_000)
    for records in (
        [line(0, 0), lost, real, line(1, 0, void="the log lost records"), again],
        [line(0, 0), lost, again, real],
        [line(0, 0), again, lost, real],
    ):
        run = points()
        take(run, records)
        assert [each.values for each in run.ready() if each.source == "learner"] == [{"learner/policy_loss": 0.5}]


def test_a_report_without_a_loss_does_not_stand_for_the_one_that_has_it() -> None:
    reports = [beat(0, buffer=4.0), beat(0, policy_loss=0.5)]
    for records in ([line(0, 0), *reports], [*reports, line(0, 0)]):
        run = points()
        take(run, records)
        assert [each.values for each in run.ready() if each.source == "learner"] == [{"learner/policy_loss": 0.5}]


def test_agents_without_weights_are_no_step_of_learning() -> None:
    run = points()
    take(run, [evaluated(-2, f"e-{number}", Outcome.SUCCESS) for number in range(3)])
    assert run.ready() == []


@given(st.text())
def test_a_name_from_a_record_is_one_that_every_tracker_takes(name: str) -> None:
    plain = plain_name(name)
    assert 1 <= len(plain) <= 40
    assert plain.isascii()
    assert plain.replace("_", "a").isalnum()


def test_suites_whose_names_differ_in_what_no_tracker_takes_have_figures_of_their_own() -> None:
    names = ("web-shop", "web.shop", "web_shop", "w" * 41, "w" * 42, "")
    assert len({plain_name(name) for name in names}) == len(names)
    assert plain_name("web_shop") == "web_shop"
    assert plain_name("web-shop") == "web_shop_4a2b04"
    run = points()
    take(run, [evaluated(3, "a", Outcome.SUCCESS, "web-shop"), evaluated(3, "b", Outcome.FAILURE, "web.shop")])
    assert len(Progress("r").new(run.ready())) == 2
