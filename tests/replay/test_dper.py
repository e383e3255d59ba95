from __future__ import annotations

import numpy as np
import pytest
from distrl.config import PrioritisedReplaySettings
from distrl.replay.circular import CircularBuffer
from distrl.replay.dper import PRIORITY_FLOOR, filtered, importance_weights, priorities, probabilities, sample
from hypothesis import given
from hypothesis import strategies as st

from replay.test_circular import record

Rows = list[list[tuple[float, float, float]]]
"""td, ratio and nll of each step of each trajectory."""

numbers = st.tuples(st.floats(-1, 1), st.floats(0, 100), st.floats(0, 30))
trajectories = st.lists(st.lists(numbers, min_size=1, max_size=5), min_size=1, max_size=8)


def buffer_of(rows: Rows, capacity: int = 64) -> CircularBuffer:
    buffer = CircularBuffer(capacity, ("td", "ratio", "nll"))
    for offset, steps in enumerate(rows):
        entry = buffer.add(record(offset, len(steps)))
        for name, column in zip(("td", "ratio", "nll"), zip(*steps, strict=True), strict=True):
            buffer.columns[name][buffer.slots(entry)] = column
    return buffer


@given(trajectories, st.floats(0, 10), st.floats(0, 1), st.floats(0, 1))
def test_priority_as_printed(rows: Rows, w1: float, w2: float, w3: float) -> None:
    found = priorities(buffer_of(rows), PrioritisedReplaySettings(w1=w1, w2=w2, w3=w3))
    most_td = max(PRIORITY_FLOOR, *(abs(td) for steps in rows for td, _, _ in steps))
    most_nll = max(PRIORITY_FLOOR, *(h for steps in rows for _, _, h in steps))
    for value, steps in zip(found, rows, strict=True):
        td, ratio, nll = np.array(steps).T
        expected = (
            w1 * np.abs(td).mean() / most_td
            + w2 * np.minimum(1, ratio).mean()
            + w3 * nll.mean() / most_nll
            + PRIORITY_FLOOR
        )
        assert value == pytest.approx(expected)


def test_only_what_is_in_the_buffer_counts() -> None:
    rows: Rows = [[(1.0, 0.0, 0.0)] * 4, [(0.5, 0.0, 0.0)] * 3]
    assert priorities(buffer_of(rows, capacity=5), PrioritisedReplaySettings(w1=1, w2=0, w3=0)) == pytest.approx(
        [1.0 + PRIORITY_FLOOR]
    )
    assert len(priorities(CircularBuffer(5), PrioritisedReplaySettings())) == 0


@given(st.lists(st.floats(PRIORITY_FLOOR, 10), min_size=1, max_size=10), st.floats(0, 1))
def test_probabilities_sum_to_1_and_keep_the_order(priority: list[float], alpha: float) -> None:
    found = probabilities(np.array(priority), alpha)
    assert found.sum() == pytest.approx(1.0)
    assert (found > 0).all()
    order = np.argsort(priority, kind="stable")
    assert (np.diff(found[order]) >= -1e-12).all()


def test_alpha_half_is_the_square_root_and_alpha_0_uniform() -> None:
    assert probabilities(np.array([1.0, 4.0]), 0.5) == pytest.approx([1 / 3, 2 / 3])
    assert probabilities(np.array([1.0, 4.0]), 0.0) == pytest.approx([0.5, 0.5])


def test_nothing_is_ever_lost_to_a_priority_of_zero() -> None:
    found = priorities(buffer_of([[(0.0, 0.0, 0.0)], [(0.0, 0.0, 0.0)]]), PrioritisedReplaySettings())
    assert probabilities(found, 1.0) == pytest.approx([0.5, 0.5])


def test_the_filter_weighs_by_what_v_traj_thinks() -> None:
    priority, quality = np.ones(3), np.array([0.0, 0.5, 1.0])
    assert filtered(priority, quality, 0.0) == pytest.approx([1.0, 1.0, 1.0])
    assert filtered(priority, quality, 0.5) == pytest.approx([0.5, 0.75, 1.0])
    assert filtered(priority, quality, 1.0) == pytest.approx([PRIORITY_FLOOR, 0.5, 1.0])


def test_draws_follow_the_probabilities_and_the_steps_are_uniform() -> None:
    probability, lengths = np.array([0.5, 0.3, 0.2]), np.array([1, 2, 5])
    drawn = sample(np.random.default_rng(0), probability, lengths, 40_000)
    entry, step = drawn.T
    assert np.bincount(entry) / len(drawn) == pytest.approx(probability, abs=0.01)
    assert np.bincount(step[entry == 2]) / (entry == 2).sum() == pytest.approx(np.full(5, 0.2), abs=0.02)


@given(st.lists(st.tuples(st.floats(1e-3, 1), st.integers(1, 9), st.floats(-5, 5)), min_size=1, max_size=9))
def test_weighted_draws_have_the_mean_of_uniform_ones(rows: list[tuple[float, int, float]]) -> None:
    """Over transitions, and, times the mean length, over trajectories where a last step stands for its own."""
    priority, lengths, f = map(np.array, zip(*rows, strict=True))
    probability = probabilities(priority, 1.0)
    drawn = np.repeat(probability / lengths, lengths)
    weights, each = np.repeat(importance_weights(probability, lengths), lengths), np.repeat(f, lengths)
    last = np.zeros(len(each))
    last[np.cumsum(lengths) - 1] = 1.0
    assert (drawn * weights).sum() == pytest.approx(1.0)
    assert (drawn * weights * each).sum() == pytest.approx(each.mean(), abs=1e-9)
    assert (drawn * weights * lengths.mean() * last * each).sum() == pytest.approx(f.mean(), abs=1e-9)


@given(st.lists(st.tuples(st.floats(1e-3, 1), st.integers(1, 9)), min_size=1, max_size=9), st.integers(0, 2**32))
def test_draws_are_in_range_and_repeat_with_the_generator(rows: list[tuple[float, int]], seed: int) -> None:
    probability = probabilities(np.array([row[0] for row in rows]), 1.0)
    lengths = np.array([row[1] for row in rows])
    one, two = (sample(np.random.default_rng(seed), probability, lengths, 50) for _ in range(2))
    assert np.array_equal(one, two)
    assert ((one[:, 0] >= 0) & (one[:, 0] < len(rows))).all()
    assert ((one[:, 1] >= 0) & (one[:, 1] < lengths[one[:, 0]])).all()


DRAWS = 400_000
"""Enough to see alpha 0.45 in place of 0.5."""


def test_draws_are_of_the_exact_probabilities_while_the_buffer_wraps_and_priorities_change() -> None:
    """Pearson's chi-square over each (entry, step), against P(τ) / T_τ written out from section 5.3."""
    rule, rng = np.random.default_rng(7), np.random.default_rng(8)
    config = PrioritisedReplaySettings(w1=1.0, w2=0.5, w3=0.1, alpha=0.5, value_filter=0.5)
    buffer = CircularBuffer(40, ("td", "ratio", "nll"))
    for round_ in range(12):
        for number in range(4):
            buffer.add(record(4 * round_ + number, int(rule.integers(1, 7))))
        for entry in buffer.entries:  # all of them change at each round
            for name, column in zip(("td", "ratio", "nll"), rule.random((3, len(entry))) ** 4, strict=True):
                buffer.columns[name][buffer.slots(entry)] = column
        quality = rule.random(len(buffer.entries))
        exact = expected(buffer, quality, config)
        found = probabilities(filtered(priorities(buffer, config), quality, config.value_filter), config.alpha)
        lengths = np.array([len(entry) for entry in buffer.entries])
        entry, step = sample(rng, found, lengths, DRAWS).T
        counts = np.bincount((np.cumsum(lengths) - lengths)[entry] + step, minlength=len(exact))
        assert len(counts) == len(exact)
        assert ((counts - DRAWS * exact) ** 2 / (DRAWS * exact)).sum() < chi_square_bound(len(exact) - 1)
    assert buffer.written > 2 * buffer.capacity


def expected(buffer: CircularBuffer, quality: np.ndarray, config: PrioritisedReplaySettings) -> np.ndarray:
    """P(τ) / T_τ of every step, one entry after the other, by loops over what the steps hold."""
    rows = [
        [tuple(float(buffer.columns[name][slot]) for name in ("td", "ratio", "nll")) for slot in buffer.slots(entry)]
        for entry in buffer.entries
    ]
    most_td, most_nll = (max(step[column] for steps in rows for step in steps) for column in (0, 2))
    weights = []
    for steps, value in zip(rows, quality, strict=True):
        mean = [
            sum(min(1.0, step[1]) if column == 1 else step[column] for step in steps) / len(steps)
            for column in range(3)
        ]
        priority = config.w1 * mean[0] / most_td + config.w2 * mean[1] + config.w3 * mean[2] / most_nll + PRIORITY_FLOOR
        weights.append((priority * (1 - config.value_filter * (1 - value))) ** config.alpha)
    total = sum(weights)
    return np.array([weight / total / len(steps) for weight, steps in zip(weights, rows, strict=True) for _ in steps])


def chi_square_bound(freedom: int) -> float:
    """What chi-square exceeds once in 3.5 million times (5 deviations), by Wilson and Hilferty (1931)."""
    part = 2 / (9 * freedom)
    return float(freedom * (1 - part + 5 * part**0.5) ** 3)
