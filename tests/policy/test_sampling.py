"""Drawing a token: what is drawn has the probability that is recorded, at the ends of the interval too."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from distrl.policy.sampling import draw, log_softmax


class At:
    """A generator that always draws the same number."""

    def __init__(self, number: float) -> None:
        self._number = number

    def random(self) -> float:
        return self._number


def drawn(shares: list[float], number: float, *, greedy: bool = False) -> int:
    with np.errstate(divide="ignore"):
        return draw(np.log(shares), cast(np.random.Generator, At(number)), greedy=greedy)


@pytest.mark.parametrize(
    ("number", "token"), [(0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (1.0 - 2**-53, 4)]
)
def test_each_token_has_its_share_of_the_interval_and_an_impossible_one_none(number: float, token: int) -> None:
    assert drawn([0.0, 0.25, 0.0, 0.5, 0.25], number) == token


def test_shares_that_do_not_quite_sum_to_one_leave_no_gap() -> None:
    assert drawn([0.4, 0.4], 1.0 - 2**-53) == 1
    assert drawn([0.8, 0.8], 0.6) == 1


def test_the_likeliest_is_taken_whatever_is_drawn() -> None:
    assert drawn([0.2, 0.5, 0.3], 0.0, greedy=True) == 1
    assert drawn([0.4, 0.2, 0.4], 0.99, greedy=True) == 0, "of equals the first"


@pytest.mark.parametrize("temperature", [None, 0.25, 1.0, 4.0])
def test_log_probabilities_sum_to_one_and_their_differences_scale(temperature: float | None) -> None:
    logits = np.array([[3.0, -1.0, 0.5], [800.0, 0.0, -800.0]])
    found = log_softmax(logits, temperature)
    assert np.allclose(np.exp(found).sum(-1), 1.0, atol=1e-12)
    assert np.allclose(found[:, :1] - found, (logits[:, :1] - logits) / (temperature or 1.0))
