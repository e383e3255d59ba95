from __future__ import annotations

import math

import numpy as np
import pytest
from distrl.evaluate.curves import wilson
from distrl.offline.ablation.difference import difference, newcombe
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.tuples(*[st.integers(0, 60)] * 4).filter(any)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((1, 1, 7, 12), -0.507, -0.026),  # Fagerland, Lydersen and Laake 2014, airway hyper-responsiveness
        ((36, 12, 2, 0), 0.057, 0.340),  # Newcombe 1998
        ((14, 5, 0, 22), 0.011, 0.226),  # Altman et al. 2000, table 6.2
    ],
)
def test_published_intervals(counts: tuple[int, int, int, int], low: float, high: float) -> None:
    assert newcombe(*counts) == pytest.approx((low, high), abs=0.0006)


@given(COUNTS)
def test_it_holds_the_difference_and_stays_within_possible_ones(counts: tuple[int, int, int, int]) -> None:
    both, first, second, neither = counts
    low, high = newcombe(*counts)
    value = (first - second) / sum(counts)
    assert -1 - 1e-9 <= low <= value + 1e-9
    assert value - 1e-9 <= high <= 1 + 1e-9
    assert newcombe(both, second, first, neither) == pytest.approx((-high, -low))
    assert newcombe(neither, second, first, both) == pytest.approx((-high, -low)), "of failures"


@given(st.integers(1, 200))
def test_without_variance_it_is_that_of_two_samples_without_correlation(n: int) -> None:
    _, high = wilson(0, n)
    assert newcombe(0, 0, 0, n) == pytest.approx((-high, high))


def test_it_covers_the_true_difference_in_about_95_of_100_samples() -> None:
    rng, shares = np.random.default_rng(0), [0.35, 0.2, 0.1, 0.35]
    drawn = rng.multinomial(100, shares, size=2000)
    intervals = [newcombe(*map(int, counts)) for counts in drawn]
    covered = np.mean([low <= 0.1 <= high for low, high in intervals])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 2000)


def test_pairs_make_it_narrower_than_two_samples() -> None:
    """60 tasks that both do, 35 that neither does: what differs are five."""
    one = {str(task): task < 64 for task in range(100)}
    other = {str(task): task < 60 or task == 64 for task in range(100)}
    found = difference(one, other)
    assert found is not None
    assert (found.tasks, found.value) == (100, pytest.approx(0.03))
    assert found.high - found.low < 0.12
    low, high = newcombe(39, 25, 22, 14)  # as many successes each, by chance on the same tasks
    assert high - low > 0.25


def test_only_tasks_with_an_outcome_under_both_count() -> None:
    found = difference({"a": True, "b": False, "only here": True}, {"a": False, "b": False, "only there": True})
    assert found is not None
    assert (found.tasks, found.value) == (2, 0.5)
    assert difference({"a": True}, {"b": True}) is None
    assert difference({}, {}) is None
