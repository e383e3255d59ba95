from __future__ import annotations

from dataclasses import replace

import pytest
from distrl.evaluate import curves
from distrl.types import Outcome, Split
from hypothesis import given
from hypothesis import strategies as st

from .world import TOPIC, evaluation, logged, task, trajectory, update, version


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 0, 0.0, 1.0), (5, 10, 0.2366, 0.7634), (0, 10, 0.0, 0.2775), (90, 100, 0.8256, 0.9448)],
)
def test_wilson_intervals_are_those_of_the_book(successes: int, trials: int, low: float, high: float) -> None:
    """Brown, Cai and DasGupta (2001), equation 4, computed by hand for these."""
    assert curves.wilson(successes, trials) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 500), st.data())
def test_a_wilson_interval_holds_the_share_and_stays_in_the_unit_interval(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    low, high = curves.wilson(successes, trials)
    assert 0 <= low <= successes / trials + 1e-12
    assert successes / trials - 1e-12 <= high <= 1


def test_what_was_interrupted_or_not_judged_is_neither_success_nor_failure() -> None:
    found = curves.score(trajectory(task(str(n)), outcome) for n, outcome in enumerate(Outcome))
    assert (found.episodes, found.successes, found.others) == (2, 1, 2)
    assert curves.score([]).success == 0.0


def test_a_second_record_of_a_task_is_counted_nowhere() -> None:
    first, second = trajectory(task("a"), Outcome.FAILURE), trajectory(task("a"), Outcome.SUCCESS)
    assert [each.trajectory for each in curves.first_of_each(logged([first, second]))] == [first]
    assert curves.evaluated([evaluation(1, first), evaluation(1, second)], Split.TEST) == {1: [first]}


def test_the_learning_curve_tells_what_each_version_cost() -> None:
    """Update 4 ends the warm-up; updates 5 and 6 fold four trajectories each."""
    updates = [update(4, 0), update(5, 4), update(6, 8)]
    versions = [version(0, 4), version(1, 5), version(2, 6)]
    won, lost = (
        trajectory(task("a", split=Split.VALIDATION)),
        trajectory(task("b", split=Split.VALIDATION), Outcome.FAILURE),
    )
    evaluations = [evaluation(2, won), evaluation(0, won), evaluation(0, lost), evaluation(1, trajectory(task("held")))]
    acted = logged([trajectory(task(f"t-{n}")) for n in range(10)])
    points = curves.learning_curve(evaluations, Split.VALIDATION, versions, updates, acted, TOPIC)
    assert [(p.version, p.trajectories, p.seconds, p.score.success) for p in points] == [(0, 0, 0, 0.5), (2, 8, 2, 1.0)]


def test_what_was_interrupted_is_not_what_a_version_learned_from() -> None:
    """Its task is fed again, so that a fleet of phones that fail would seem to need more trajectories."""
    outcomes = [Outcome.INTERRUPTED if n % 3 == 0 else Outcome.SUCCESS for n in range(9)]
    acted = logged([trajectory(task(f"t-{n}"), outcome) for n, outcome in enumerate(outcomes)])
    evaluations = [evaluation(1, trajectory(task("a", split=Split.VALIDATION)))]
    points = curves.learning_curve(
        evaluations, Split.VALIDATION, [version(0, 4), version(1, 5)], [update(4, 0), update(5, 6)], acted, TOPIC
    )
    assert [point.trajectories for point in points] == [4], "of the six before its update"
    assert len(curves.played(acted)) == 6


@pytest.mark.parametrize(
    ("counts", "going_on"),
    [
        ((48, 48, 12), {2}),
        ((48, 12, 48), {1}),
        ((48, 12, 30, 48), {1, 2}),
        ((48, 20, 20, 20), set()),
        ((12, 48), set()),
        ((48, 48), set()),
        ((7,), set()),
    ],
)
def test_a_version_whose_evaluation_goes_on_is_known_by_the_tasks_that_it_lacks(
    counts: tuple[int, ...], going_on: set[int]
) -> None:
    """Where fewer are asked for from some version on, nothing is unfinished; nor where more are."""
    task_ids = {number: [f"v-{n}" for n in range(count)] for number, count in enumerate(counts)}
    assert curves.unfinished(task_ids) == going_on


def test_lag_is_the_newest_version_at_the_fold_less_the_oldest_that_acted() -> None:
    """Update u folds four records and, once folded, makes version u - 4: when update 6 is journalled, 1 is newest."""
    updates = [update(4, 0), update(5, 4), update(6, 8)]
    versions = [version(0, 4), version(1, 5), version(2, 6)]
    acted = [(0,), (0,), (0, 0), (0,), (0, 1), (1,), (1, 1), (0,), (2,)]
    records = logged([trajectory(task(str(n)), versions=v) for n, v in enumerate(acted)])
    assert curves.policy_lags(records, versions, updates, TOPIC) == [0, 0, 0, 0, 1, 0, 0, 1]


class Compared(int):
    """An update's number that counts how often it is compared."""

    times = 0

    def __lt__(self, other: int) -> bool:
        Compared.times += 1
        return super().__lt__(other)


def test_the_first_folds_of_a_long_run_do_not_look_at_every_version_for_each_trajectory() -> None:
    versions = [version(number, Compared(number)) for number in range(200)]
    updates = [update(u, 10 * u) for u in range(201)]
    found = curves.first_folds(range(2_000), versions, updates, TOPIC)
    assert [(each.update, each.newest) for each in found if each][::500] == [(1, 0), (51, 50), (101, 100), (151, 150)]
    assert Compared.times < 10 * len(versions)


PAIRS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)))


@given(PAIRS, PAIRS, st.lists(st.integers(0, 40)))
def test_the_fold_and_the_lag_of_any_log_are_those_of_the_definition(
    made: list[tuple[int, int]], marks: list[tuple[int, int]], offsets: list[int]
) -> None:
    versions = [version(number, u) for number, u in made]
    updates = [update(u, sum(offset for _, offset in marks[: u + 1])) for u in range(len(marks))]
    for offset, found in zip(offsets, curves.first_folds(offsets, versions, updates, TOPIC), strict=True):
        folding = next((each.u for each in updates if each.watermarks[1].offset > offset), None)
        newest = max((each.version for each in versions if folding is not None and each.update < folding), default=0)
        assert found == (None if folding is None else curves.FirstFold(folding, newest))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))), st.integers(1, 10))
def test_a_worker_was_in_an_episode_where_any_of_its_episodes_lasted(spans: list[tuple[int, int]], at: int) -> None:
    """A worker plays on several phones, so its episodes overlap; the last one uses the version, an hour later."""
    played = [
        replace(trajectory(task(str(n))), started_at=1000 * begin, finished_at=1000 * (begin + length))
        for n, (begin, length) in enumerate(spans)
    ]
    used = trajectory(task("used"), versions=(at,), started_at=3_600_000)
    found = curves.reload_seconds(logged([*played, used]), [version(at, 5)])
    assert bool(found) == any(begin <= at <= begin + length for begin, length in spans)


def test_a_trajectory_without_steps_has_no_lag() -> None:
    records = logged([trajectory(task("a"), Outcome.INTERRUPTED, versions=())])
    assert curves.policy_lags(records, [version(0, 4)], [update(5, 4)], TOPIC) == []


def test_a_reload_is_timed_for_workers_that_were_at_work_when_the_version_came() -> None:
    """Version 1 comes at 1,000 ms. Worker a was in an episode then, b was down and starts an hour later."""
    at_work = trajectory(task("1"), versions=(0, 1), worker="a", started_at=500, steps_at=(600, 1250))
    later = trajectory(task("2"), versions=(1,), worker="a", started_at=1300)
    down = trajectory(task("3"), versions=(1,), worker="b", started_at=3_600_000)
    assert curves.reload_seconds(logged([at_work, later, down]), [version(0, 4), version(1, 5)]) == [0.25]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0, 1))
def test_percentiles_lie_between_the_extremes(values: list[float], share: float) -> None:
    assert min(values) - 1e-6 <= curves.percentile(values, share) <= max(values) + 1e-6


def test_percentiles_interpolate() -> None:
    assert curves.percentile([4, 1, 3, 2], 0.5) == 2.5
    assert curves.percentile([], 0.5) == 0.0


def test_moving_success_leaves_out_what_has_no_outcome() -> None:
    outcomes = [Outcome.SUCCESS, Outcome.INTERRUPTED, Outcome.UNKNOWN, Outcome.FAILURE, Outcome.SUCCESS]
    records = logged([trajectory(task(str(n)), outcome) for n, outcome in enumerate(outcomes)])
    assert curves.moving_success(records, 2) == [(3, 0.5), (4, 0.5)], "counted as the learning curve counts them"
    assert curves.moving_success(records, 4) == []


def test_the_suite_that_is_compared_does_not_depend_on_which_phone_was_first() -> None:
    """A list of tasks of two suites: that of most tasks, and of as many that of the lower name."""
    few = [evaluation(0, trajectory(replace(task(f"a-{n}"), suite="a"))) for n in range(2)]
    many = [evaluation(0, trajectory(replace(task(f"b-{n}"), suite="b"))) for n in range(3)]
    later = [evaluation(1, trajectory(replace(task(f"a-{n}"), suite="a"))) for n in range(9)]
    for found in ([*few, *many, *later], [*later, *many[::-1], *few[::-1]]):
        assert {each.task.suite for each in curves.evaluated(found, Split.TEST)[0]} == {"b"}
        assert curves.of_other_suites(found, Split.TEST) == 2 + 9
    for found in ([*few, *many[:2]], [*many[:2], *few]):
        assert {each.task.suite for each in curves.evaluated(found, Split.TEST)[0]} == {"a"}


def test_versions_are_compared_on_the_suite_of_the_first_and_the_others_are_counted() -> None:
    home = [trajectory(task(name)) for name in ("a", "b")]
    own = [trajectory(replace(task(name), suite="own")) for name in ("c", "d", "e")]
    found = [evaluation(7, own[0]), evaluation(0, home[0]), evaluation(0, own[1]), evaluation(7, home[1])]
    found.append(evaluation(7, own[2]))
    assert curves.evaluated(found, Split.TEST) == {0: [home[0]], 7: [home[1]]}
    assert curves.of_other_suites(found, Split.TEST) == 3
    assert curves.evaluated(found, Split.VALIDATION) == {}
    assert curves.of_other_suites(found, Split.VALIDATION) == 0
