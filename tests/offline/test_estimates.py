from __future__ import annotations

import math
from itertools import product
from random import Random

import numpy as np
import pytest
from distrl.offline.estimates import (
    LEAST_EPISODES,
    Array,
    Episodes,
    bootstrap,
    doubly_robust,
    effective_episodes,
    estimates,
    mean_return,
    mean_weight,
    ordinary,
    per_decision,
    weighted,
)
from hypothesis import given
from hypothesis import strategies as st


def episodes(*rows: tuple[list[float], list[float]], values: list[list[float]] | None = None) -> Episodes:
    """Of (ratios, rewards) each."""
    return Episodes.of(
        [np.log(np.array(ratios)) for ratios, _ in rows],
        [np.array(rewards) for _, rewards in rows],
        None if values is None else [np.array(each) for each in values],
    )


def once(made: Episodes) -> Array:
    return np.ones((1, len(made)))


# W = 2 · 0.5 = 1 with return 1; W = 3 with return 0; W = 0.5 with return 1
THREE = episodes(([2.0, 0.5], [0.0, 1.0]), ([3.0], [0.0]), ([0.5], [1.0]))


def test_against_numbers_worked_out_by_hand() -> None:
    assert mean_return(THREE, once(THREE))[0] == pytest.approx(2 / 3)
    assert mean_weight(THREE, once(THREE))[0] == pytest.approx((1.0 + 3.0 + 0.5) / 3)
    assert ordinary(THREE, once(THREE))[0] == pytest.approx((1.0 + 0.0 + 0.5) / 3)
    assert weighted(THREE, once(THREE))[0] == pytest.approx(1.5 / (1.0 + 3.0 + 0.5))
    # step 0: weights 2, 3, 0.5 and rewards 0, 0, 1; step 1: weights 1, 3, 0.5 (the last two are over), rewards 1, 0, 0
    assert per_decision(THREE, once(THREE))[0] == pytest.approx(0.5 / 5.5 + 1.0 / 4.5)


def test_doubly_robust_by_hand() -> None:
    made = episodes(([2.0, 0.5], [0.0, 1.0]), ([3.0], [0.0]), values=[[0.4, 0.6], [0.2]])
    first = 0.4 + 2.0 * (0.0 + 0.6 - 0.4) + 1.0 * (1.0 + 0.0 - 0.6)
    second = 0.2 + 3.0 * (0.0 + 0.0 - 0.2)
    assert doubly_robust(made, once(made))[0] == pytest.approx((first + second) / 2)


def test_an_episode_counted_twice_is_the_episode_twice() -> None:
    twice = episodes(*[([2.0, 0.5], [0.0, 1.0])] * 2, ([3.0], [0.0]))
    for estimator in (mean_return, ordinary, weighted, per_decision):
        assert estimator(THREE, np.array([[2.0, 1.0, 0.0]]))[0] == pytest.approx(estimator(twice, once(twice))[0])


def test_effective_episodes_by_hand() -> None:
    assert effective_episodes(np.log(np.array([1.0, 1.0, 1.0]))) == pytest.approx(3.0)
    assert effective_episodes(np.log(np.array([1.0, 3.0]))) == pytest.approx(16 / 10)
    assert effective_episodes(np.zeros(0)) == 0.0


lengths_and_outcomes = st.lists(st.tuples(st.integers(1, 7), st.booleans()), min_size=1, max_size=25)


def outcomes_of(rows: list[tuple[int, bool]]) -> list[Array]:
    return [np.array([0.0] * (length - 1) + [float(won)]) for length, won in rows]


@given(lengths_and_outcomes, st.randoms(use_true_random=False))
def test_at_equal_policies_every_estimate_is_the_mean_return(rows: list[tuple[int, bool]], rule: Random) -> None:
    # whatever V says but for the start: at equal policies the sum of its differences is what it began with
    values = [np.array([rule.random() for _ in range(length)]) for length, _ in rows]
    made = Episodes.of([np.zeros(length) for length, _ in rows], outcomes_of(rows), values)
    expected = sum(won for _, won in rows) / len(rows)
    for name, found in estimates(made, seed=1, resamples=20).items():
        assert found.value == pytest.approx(1.0 if name == "mean_weight" else expected), name
        assert found.episodes == pytest.approx(len(rows))
        assert -1e-9 <= found.low <= found.high + 1e-9


@given(lengths_and_outcomes, st.randoms(use_true_random=False))
def test_weighted_estimates_are_within_the_returns_whatever_the_ratios(
    rows: list[tuple[int, bool]], rule: Random
) -> None:
    made = Episodes.of([np.array([rule.uniform(-80, 80) for _ in range(n)]) for n, _ in rows], outcomes_of(rows))
    found = estimates(made, seed=1, resamples=20)
    assert -1e-9 <= found["weighted"].value <= 1 + 1e-9
    for each in found.values():
        assert math.isfinite(each.value)
        assert 1 - 1e-9 <= each.episodes <= len(rows) + 1e-9


def test_unbiased_ones_recover_the_value_of_another_policy() -> None:
    """A task of two steps with two actions each: success is action 1 twice. All 16 (episode, weight) pairs are summed
    with the probability that μ gives them, so what is compared are expectations and not draws."""
    mu, pi = 0.3, 0.6
    rows, chance = [], []
    for first, second in product((0, 1), repeat=2):
        taken = [pi / mu if action else (1 - pi) / (1 - mu) for action in (first, second)]
        rows.append((taken, [0.0, float(first and second)]))
        chance.append(math.prod(mu if action else 1 - mu for action in (first, second)))
    made = episodes(*rows, values=[[0.9, 0.1 + 0.5 * first] for first, _ in product((0, 1), repeat=2)])
    for estimator in (ordinary, doubly_robust, weighted, per_decision):
        assert estimator(made, np.array([chance]))[0] == pytest.approx(pi * pi), estimator.__name__


def test_bootstrap_is_seeded_and_covers_what_it_should() -> None:
    won = [np.array([float(n % 4 == 0)]) for n in range(400)]
    made = Episodes.of([np.zeros(1)] * 400, won)
    low, high = bootstrap(mean_return, made, seed=3)
    assert (low, high) == bootstrap(mean_return, made, seed=3)
    assert (low, high) != bootstrap(mean_return, made, seed=4)
    normal = 1.96 * math.sqrt(0.25 * 0.75 / 400)
    assert (low, high) == (pytest.approx(0.25 - normal, abs=0.01), pytest.approx(0.25 + normal, abs=0.01))


def test_few_effective_episodes_are_called_noise() -> None:
    far = Episodes.of([np.array([float(n)]) for n in range(100)], [np.array([1.0])] * 100)
    near = Episodes.of([np.array([0.001 * n]) for n in range(100)], [np.array([1.0])] * 100)
    assert estimates(far, 0, 20)["weighted"].is_noise
    assert not estimates(near, 0, 20)["weighted"].is_noise
    assert LEAST_EPISODES < 100


def test_doubly_robust_needs_values_and_nothing_comes_of_nothing() -> None:
    assert "doubly_robust" not in estimates(THREE, 0, 20)
    with pytest.raises(ValueError, match="values"):
        doubly_robust(THREE, once(THREE))
    assert estimates(Episodes.of([], []), 0) == {}


def test_ratios_beyond_a_floats_range_stay_numbers() -> None:
    made = Episodes.of([np.full(9, 300.0), np.full(9, -300.0)], [np.array([0.0] * 8 + [1.0])] * 2)
    for each in estimates(made, 0, 20).values():
        assert math.isfinite(each.value)
        assert math.isfinite(each.episodes)
