"""When curves over time are at a success for the first time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from distrl.experiment.reached import goal, reached
from hypothesis import given
from hypothesis import strategies as st

Curve = list[list[float]]


def curve(*success: float) -> Curve:
    """A point each 100 virtual seconds."""
    return [[100.0 * place, 0.0, each] for place, each in enumerate(success)]


def test_the_goal_is_a_share_of_the_best_arm_s_last_mean() -> None:
    best, other = [curve(0.9, 0.5), curve(0.1, 0.7)], [curve(0.0, 0.4)]
    assert goal([best, other]) == pytest.approx(0.8 * 0.6)


def test_between_two_points_a_curve_is_straight() -> None:
    found = reached([curve(0.2, 0.4, 0.8, 0.3)], 0.5)
    assert (found.at_s, found.low_s, found.high_s) == (pytest.approx(125.0), None, None)
    assert reached([curve(0.2, 0.4, 0.8, 0.3)], 0.8).at_s == 200.0


def test_what_begins_there_took_no_time_and_what_never_is_there_has_none() -> None:
    assert reached([curve(0.5, 0.1)], 0.5).at_s == 0.0
    assert reached([curve(0.1, 0.4)], 0.5).at_s is None


def test_where_no_arm_succeeds_nothing_is_reached() -> None:
    failing = [curve(0.2, 0.0), curve(0.0, 0.0)]
    found = reached(failing, goal([failing]))
    assert (found.success, found.at_s, found.low_s, found.high_s) == (0.0, None, None, None)


def test_where_one_seed_of_three_never_is_there_the_interval_is_open() -> None:
    found = reached([curve(0.0, 1.0), curve(0.0, 1.0), curve(0.0, 0.0)], 0.5)
    assert found.at_s == pytest.approx(75.0)
    assert found.low_s == pytest.approx(50.0)
    assert found.high_s is None


def by_hand(points: Sequence[Sequence[float]], success: float) -> float:
    """From the definition: the first time of a fine grid."""
    for (begin, _, low), (end, _, high) in pairwise(points):
        for part in range(1001):
            if low + (high - low) * part / 1000 >= success - 1e-12:
                return begin + (end - begin) * part / 1000
    return math.inf


@given(st.lists(st.integers(0, 20), min_size=2, max_size=8), st.integers(1, 19))
def test_it_is_the_first_time_of_a_fine_grid(levels: list[int], at: int) -> None:
    points = curve(*(level / 20 for level in levels))
    found = reached([points], (at + 0.5) / 20).at_s
    expected = by_hand(points, (at + 0.5) / 20)
    assert (math.inf if found is None else found) == pytest.approx(expected, abs=0.11)
