"""Means, intervals, and when a difference is called one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from distrl.experiment.statistics import Difference, Summary, difference, difference_over_tasks, summary, verdict


def test_the_interval_of_a_mean_holds_it_and_lies_within_the_seeds() -> None:
    found = summary([50.0, 56.0, 47.0])
    assert found.mean == 51.0
    assert 47.0 <= found.low < found.mean < found.high <= 56.0
    assert found == summary([50.0, 56.0, 47.0])


def test_one_seed_has_no_interval_and_none_is_refused() -> None:
    assert summary([3.0]) == Summary(1, 3.0, None, None)
    with pytest.raises(ValueError, match="no seeds"):
        summary([])


def test_a_planted_difference_of_three_points_inside_the_noise_is_undecided() -> None:
    """Success of three seeds that differ by some 4 points, and the same 3 points higher."""
    one = [52.1, 46.3, 50.8]
    other = [each + 3 for each in one]
    assert difference(other, one).mean == pytest.approx(3.0)
    assert difference(other, one).verdict == "undecided"
    assert difference([each + 30 for each in one], one).verdict == "better"
    assert difference(one, [each + 30 for each in one]).verdict == "worse"


def test_three_points_are_decided_where_the_noise_is_smaller() -> None:
    assert difference([53.0, 53.1, 52.9], [50.0, 50.1, 49.9]).verdict == "better"


def test_one_seed_decides_nothing() -> None:
    found = difference([90.0], [10.0])
    assert (found.mean, found.low, found.high, found.verdict) == (80.0, -math.inf, math.inf, "undecided")


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_equal_arms_are_called_different_in_one_case_of_twenty_at_most(seeds: int) -> None:
    rng = np.random.default_rng(7)
    draws = rng.normal(50.0, 4.0, (4000, 2, seeds))
    wrong = np.mean([difference(one, other).verdict != "undecided" for one, other in draws.tolist()])
    assert wrong < 0.055


def test_welchs_interval_is_the_textbooks() -> None:
    """Two samples, worked by hand: means 3 and 6, variances 1 and 4, of three each; 2.9 degrees of freedom, so 2."""
    found = difference([2.0, 3.0, 4.0], [4.0, 6.0, 8.0])
    half = 4.303 * math.sqrt(1 / 3 + 4 / 3)
    assert (found.mean, found.low, found.high) == pytest.approx((-3.0, -3.0 - half, -3.0 + half))


def test_arms_without_noise_differ_if_their_numbers_do() -> None:
    assert difference([1.0, 1.0], [1.0, 1.0]).verdict == "undecided"
    assert difference([2.0, 2.0], [1.0, 1.0]).verdict == "better"


def test_rounding_takes_no_degree_of_freedom() -> None:
    """Three seeds of each arm and equal variances: four degrees, whatever the last bits of the variances are."""
    rng = np.random.default_rng(3)
    for draws in rng.normal(0.5, 0.05, (200, 3)):
        found = difference(draws.tolist(), (draws + 0.25).tolist())
        half = 2.776 * math.sqrt(2 * float(np.var(draws, ddof=1)) / 3)
        assert found.high - found.mean == pytest.approx(half)


def test_the_difference_over_tasks_is_worked_by_hand() -> None:
    """Four tasks and two seeds: differences 1, 0, 1/2 and 0 have the mean 3/8 and the variance 11/48."""
    found = difference_over_tasks(
        [[True, True, True, False]] * 2, [[False, True, False, False], [False, True, True, False]]
    )
    half = 1.96 * math.sqrt(11 / 48 / 4)
    assert (found.mean, found.low, found.high) == pytest.approx((0.375, 0.375 - half, 0.375 + half))


def test_one_task_decides_nothing_and_none_is_refused() -> None:
    assert difference_over_tasks([[True]], [[False]]).verdict == "undecided"
    with pytest.raises(ValueError, match="no seeds or no tasks"):
        difference_over_tasks([[]], [[]])


def test_a_verdict_is_what_all_say() -> None:
    better, worse, wide = Difference(0.2, 0.1, 0.3), Difference(-0.2, -0.3, -0.1), Difference(0.2, -0.1, 0.5)
    assert verdict(better, better) == verdict(better) == "better"
    assert verdict(worse, worse) == "worse"
    assert verdict(better, wide) == verdict(better, worse) == "undecided"
