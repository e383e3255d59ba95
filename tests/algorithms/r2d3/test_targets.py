"""Targets and priorities of R2D3 against their definitions, one step at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from distrl.algorithms.r2d3.targets import double_q_targets, has_target, sequence_priorities
from distrl.algorithms.returns import Array, Mask
from hypothesis import given
from hypothesis import strategies as st

EPSILON = 1e-2


@dataclass(frozen=True)
class Sequences:
    rewards: Array
    ends: Mask
    present: Mask
    online: Array
    target: Array
    gamma: float
    n: int

    def targets(self) -> Array:
        return double_q_targets(
            self.rewards, self.ends, self.present, self.online, self.target, self.gamma, self.n, EPSILON
        )


@st.composite
def sequences(draw: st.DrawFn) -> Sequences:
    """Rows that end, rows that are cut off, and padding behind either."""
    rows, columns, actions = draw(st.integers(1, 4)), draw(st.integers(1, 9)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    present, ends = np.zeros((rows, columns), dtype=bool), np.zeros((rows, columns), dtype=bool)
    for row in range(rows):
        count = draw(st.integers(1, columns))
        present[row, :count] = True
        ends[row, count - 1] = draw(st.booleans())
    q = rng.normal(size=(2, rows, columns, actions)) * 3
    rewards = rng.normal(size=(rows, columns))
    return Sequences(rewards, ends, present, q[0], q[1], draw(st.floats(0.0, 1.0, width=32)), draw(st.integers(1, 6)))


def h(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + EPSILON * x


def h_inverse(y: float) -> float:
    """By bisection, from h alone."""
    low, high = -1e4, 1e4
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < y else (low, middle)
    return (low + high) / 2


def as_defined(given_sequences: Sequences) -> tuple[Array, Mask]:
    """The sum for each step by itself."""
    s = given_sequences
    found, has = np.zeros_like(s.rewards), np.zeros_like(s.present)
    for row in range(len(s.rewards)):
        count = int(s.present[row].sum())
        for t in range(count):
            ended = bool(s.ends[row, count - 1])
            if t == count - 1 and not ended:
                continue  # nothing is known of what followed
            steps = min(s.n, count - t if ended else count - 1 - t)
            total = sum(s.gamma**k * s.rewards[row, t + k] for k in range(steps))
            if t + steps < count:
                best = int(np.argmax(s.online[row, t + steps]))
                total += s.gamma**steps * h_inverse(float(s.target[row, t + steps, best]))
            found[row, t], has[row, t] = h(total), True
    return found, has


@given(sequences())
def test_targets_are_the_printed_sum(given_sequences: Sequences) -> None:
    expected, has = as_defined(given_sequences)
    assert np.array_equal(has_target(given_sequences.ends, given_sequences.present), has)
    assert given_sequences.targets() == pytest.approx(expected, abs=1e-7)


@given(sequences(), st.integers(0, 2**32 - 1))
def test_what_padding_holds_does_not_matter(given_sequences: Sequences, seed: int) -> None:
    s, rng = given_sequences, np.random.default_rng(seed)
    noise = np.where(s.present, 0.0, rng.normal(size=s.present.shape) * 100)
    other = Sequences(
        s.rewards + noise, s.ends, s.present, s.online + noise[..., None], s.target - noise[..., None], s.gamma, s.n
    )
    assert np.array_equal(other.targets(), s.targets())


@given(sequences())
def test_a_batch_is_its_rows(given_sequences: Sequences) -> None:
    s = given_sequences
    for row, found in enumerate(s.targets()):
        one = slice(row, row + 1)
        alone = Sequences(s.rewards[one], s.ends[one], s.present[one], s.online[one], s.target[one], s.gamma, s.n)
        assert np.array_equal(alone.targets()[0], found)


def test_by_hand() -> None:
    """Three steps that end with a reward of 3, γ = 0.5, without rescaling of note: h(3) = 1 + 3ε, h⁻¹(0) = 0.

    The learning network prefers action 1 everywhere, which the older one holds for h(8) = 2 + 8ε."""
    online = np.tile([0.0, 1.0], (1, 3, 1))
    older = np.tile([9.0, h(8.0)], (1, 3, 1))
    rewards = np.array([[0.0, 0.0, 3.0]])
    ends, present = np.array([[False, False, True]]), np.ones((1, 3), dtype=bool)
    two = double_q_targets(rewards, ends, present, online, older, 0.5, 2, EPSILON)
    assert two[0] == pytest.approx([h(0.25 * 8), h(0.5 * 3), h(3)])
    assert h(3) == pytest.approx(1 + 3 * EPSILON)
    one = double_q_targets(rewards, ends, present, online, older, 0.5, 1, EPSILON)
    assert one[0] == pytest.approx([h(0.5 * 8), h(0.5 * 8), h(3)])


def test_the_older_network_values_what_the_learning_one_prefers() -> None:
    """The mean of noise is not taken for its maximum: with one network for both the target would be h(2)."""
    online, older = np.array([[[0.0, 0.0], [0.5, 0.0]]]), np.array([[[0.0, 0.0], [0.0, h(2.0)]]])
    ends, present = np.zeros((1, 2), dtype=bool), np.ones((1, 2), dtype=bool)
    found = double_q_targets(np.zeros((1, 2)), ends, present, online, older, 1.0, 1, EPSILON)
    assert found[0, 0] == 0.0


def test_priorities_by_hand() -> None:
    """0.9 of the largest and 0.1 of the mean, of learned steps alone."""
    td = np.array([[1.0, -3.0, 100.0], [2.0, 2.0, 2.0], [5.0, 5.0, 5.0]])
    learned = np.array([[True, True, False], [True, True, True], [False, False, False]])
    assert sequence_priorities(td, learned, 0.9) == pytest.approx([0.9 * 3 + 0.1 * 2, 2.0, 0.0])


@given(sequences(), st.floats(0.0, 1.0))
def test_a_priority_lies_between_mean_and_largest(given_sequences: Sequences, eta: float) -> None:
    learned, td = given_sequences.present, given_sequences.rewards
    for row, found in enumerate(sequence_priorities(td, learned, eta)):
        size = np.abs(td[row][learned[row]])
        assert size.mean() - 1e-12 <= found <= size.max() + 1e-12
        assert found == pytest.approx(eta * size.max() + (1 - eta) * size.mean())
