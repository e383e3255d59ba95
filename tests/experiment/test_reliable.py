"""Aggregates over seeds and tasks: against the definitions written out, and by what must hold of them."""

from __future__ import annotations

from itertools import combinations, product
from math import floor

import numpy as np
import pytest
from distrl.experiment.reliable import (
    Scores,
    flipped,
    improvement_estimate,
    interquartile_estimate,
    interquartile_mean,
    probability_of_improvement,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

SCORES = arrays(
    np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=st.floats(0, 1).map(lambda x: round(x, 2))
)


@st.composite
def same_tasks(draw: st.DrawFn) -> tuple[Scores, Scores]:
    tasks = draw(st.integers(1, 5))
    one, other = (
        draw(arrays(np.float64, (draw(st.integers(1, 5)), tasks), elements=st.sampled_from([0.0, 0.25, 0.5, 1.0])))
        for _ in range(2)
    )
    return one, other


def middle(values: list[float]) -> float:
    """The definition: leave out a quarter at each end, rounded down, and take the mean."""
    out = floor(len(values) / 4)
    left = sorted(values)[out : len(values) - out]
    return sum(left) / len(left)


def improved(one: Scores, other: Scores) -> float:
    """The definition, by loops: P(X > Y) + P(X = Y) / 2 of each task, and their mean."""
    tasks = []
    for task in range(one.shape[1]):
        pairs = list(product(one[:, task], other[:, task]))
        tasks.append(sum(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs) / len(pairs))
    return sum(tasks) / len(tasks)


@given(SCORES)
def test_the_interquartile_mean_is_the_definitions(scores: Scores) -> None:
    assert interquartile_mean(scores) == pytest.approx(middle(scores.ravel().tolist()))


def test_an_outlier_in_the_outer_quarter_moves_nothing() -> None:
    scores = np.array([[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]])
    found = interquartile_mean(scores)
    assert found == pytest.approx(0.25)
    scores[0, 3] = 100.0
    assert interquartile_mean(scores) == found


@given(SCORES)
def test_its_interval_lies_within_the_scores_and_is_the_same_each_time(scores: Scores) -> None:
    found = interquartile_estimate(scores)
    assert (found.interval is None) == (len(scores) == 1)
    low, high = found.interval or (found.value, found.value)
    assert scores.min() - 1e-12 <= low <= high <= scores.max() + 1e-12
    assert interquartile_estimate(scores) == found


def test_the_bootstrap_is_stratified() -> None:
    """Tasks that differ, and seeds that do not: no draw may take an easy task for a hard one, so there is no width."""
    scores = np.tile(np.linspace(0, 1, 6), (3, 1))
    found = interquartile_estimate(scores)
    assert (found.low, found.high) == pytest.approx((found.value, found.value))
    shuffled = np.array([np.roll(row, 2 * place) for place, row in enumerate(scores)])
    wide = interquartile_estimate(shuffled)
    assert wide.high - wide.low > 0.1


@given(same_tasks())
def test_the_probability_of_improvement_is_the_definitions(pair: tuple[Scores, Scores]) -> None:
    one, other = pair
    assert probability_of_improvement(one, other) == pytest.approx(improved(one, other))
    assert probability_of_improvement(one, other) + probability_of_improvement(other, one) == pytest.approx(1.0)
    assert probability_of_improvement(one, one) == pytest.approx(0.5)


def test_what_is_always_better_improves_for_certain() -> None:
    one, other = np.full((3, 4), 0.8), np.full((3, 4), 0.2)
    found = improvement_estimate(one, other)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)


def test_equal_arms_are_seldom_told_apart_with_ten_seeds() -> None:
    """Their interval leaves out one half in few cases; the authors have 95 % for ten seeds or more."""
    rng = np.random.default_rng(5)
    missed = 0
    for _ in range(120):
        one, other = rng.binomial(16, 0.5, (2, 10, 6)) / 16
        found = improvement_estimate(one, other)
        missed += not found.low <= 0.5 <= found.high
    assert missed <= 0.15 * 120


def test_other_tasks_and_no_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="on 2 tasks and on 3"):
        improvement_estimate(np.zeros((2, 2)), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="no scores"):
        interquartile_estimate(np.zeros((0, 2)))


@given(st.integers(2, 5).flatmap(lambda n: st.lists(st.lists(st.booleans(), min_size=n, max_size=n), min_size=2)))
def test_flips_are_the_pairs_of_seeds_that_differ_on_a_task(outcomes: list[list[bool]]) -> None:
    pairs = list(combinations(outcomes, 2))
    shares = [sum(a != b for a, b in zip(one, other, strict=True)) / len(one) for one, other in pairs]
    assert flipped(outcomes) == pytest.approx(sum(shares) / len(pairs))


def test_one_seed_flips_nothing_that_can_be_known() -> None:
    assert flipped([[True, False]]) is None
