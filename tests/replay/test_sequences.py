"""Sequences of episodes, and draws of them against the exact probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from distrl.errors import ConfigError
from distrl.replay.sequences import Shape, Window, draw, windows
from hypothesis import given
from hypothesis import strategies as st

DRAWS = 40_000
CHI_SQUARE_999 = {1: 10.83, 3: 16.27, 4: 18.47}
"""By degrees of freedom, the value that chance exceeds once in a thousand times."""


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    length = draw(st.integers(1, 8))
    return Shape(draw(st.integers(0, 5)), length, draw(st.integers(1, 5)), draw(st.integers(1, length)))


@given(st.integers(0, 40), shapes())
def test_each_step_is_learned_from_and_none_beyond_the_end(steps: int, shape: Shape) -> None:
    found = windows(steps, shape)
    learned = {t for each in found for t in range(each.start, min(each.start + shape.length, steps))}
    assert learned == set(range(steps))
    assert all(each.burn_in == min(each.start, shape.burn_in) for each in found)
    assert [each.start for each in found] == sorted({each.start for each in found})


def test_windows_by_hand() -> None:
    """R2D2's: they overlap by half, and the last ends where the episode does."""
    assert windows(10, Shape(burn_in=2, length=4, ahead=3, stride=2)) == [
        Window(0, 0),
        Window(2, 2),
        Window(4, 2),
        Window(6, 2),
    ]
    assert windows(3, Shape(2, 4, 3, 2)) == [Window(0, 0)]
    assert windows(2, Shape(0, 1, 1, 1)) == [Window(0, 0), Window(1, 0)]


@pytest.mark.parametrize("wrong", [(-1, 4, 1, 1), (0, 4, 0, 1), (0, 4, 1, 5), (0, 4, 1, 0)])
def test_shapes_that_leave_steps_out_are_refused(wrong: tuple[int, int, int, int]) -> None:
    with pytest.raises(ConfigError):
        Shape(*wrong)


def chi_square(counts: np.ndarray, chances: np.ndarray) -> float:
    expected = counts.sum() * chances / chances.sum()
    return float(((counts - expected) ** 2 / expected).sum())


def test_draws_have_the_exact_probabilities() -> None:
    """The buffer by the demo ratio, the sequence by p^α."""
    agent, demonstrations = np.array([1.0, 4.0, 9.0, 0.25, 2.0]), np.array([3.0, 1.0, 1.0, 0.5])
    found = draw(np.random.default_rng(3), agent, demonstrations, demo_ratio=0.25, size=DRAWS, alpha=0.5, beta=0.6)
    assert chi_square(np.bincount(found.is_expert.astype(int)), np.array([0.75, 0.25])) < CHI_SQUARE_999[1]
    for expert, priorities in ((False, agent), (True, demonstrations)):
        counts = np.bincount(found.place[found.is_expert == expert], minlength=len(priorities))
        assert chi_square(counts, np.sqrt(priorities)) < CHI_SQUARE_999[len(priorities) - 1]


def test_weights_undo_the_priorities() -> None:
    """With β = 1 the weighted mean over draws is the plain mean over sequences, up to one factor for all."""
    agent, values = np.array([1.0, 4.0, 9.0, 0.25]), np.array([2.0, -1.0, 5.0, 7.0])
    found = draw(np.random.default_rng(5), agent, np.zeros(0), demo_ratio=0.5, size=DRAWS, alpha=1.0, beta=1.0)
    weighted = (found.weights * values[found.place]).sum() / found.weights.sum()
    assert weighted == pytest.approx(values.mean(), rel=0.03)
    assert found.weights.max() == 1.0
    assert found.weights.min() > 0.0


@pytest.mark.parametrize(
    ("agent", "demonstrations", "ratio", "expert"),
    [(0, 2, 0.25, True), (2, 0, 0.25, False), (2, 2, 0.0, False), (2, 2, 1.0, True)],
)
def test_a_buffer_that_is_empty_or_left_out_is_not_drawn_from(
    agent: int, demonstrations: int, ratio: float, expert: bool
) -> None:
    found = draw(
        np.random.default_rng(0), np.ones(agent), np.ones(demonstrations), demo_ratio=ratio, size=50, alpha=1, beta=1
    )
    assert (found.is_expert == expert).all()


@pytest.mark.parametrize("demonstrations", [0, 3])
def test_nothing_to_draw_from_is_refused(demonstrations: int) -> None:
    with pytest.raises(ValueError, match="buffer"):
        draw(np.random.default_rng(0), np.zeros(0), np.ones(demonstrations), demo_ratio=0, size=5, alpha=1, beta=1)
