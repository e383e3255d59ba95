from __future__ import annotations

from itertools import pairwise

import factories
import pytest
import torch
from distrl.algorithms.descent import LEAST_ROWS, PASS_ROWS, adamw, descend, passes
from distrl.algorithms.protocol import checked
from distrl.errors import PolicyError
from distrl.policy.protocol import Score
from hypothesis import given
from hypothesis import strategies as st
from torch import nn


def test_a_step_that_reaches_no_weight_is_refused() -> None:
    """Each version would ship the same bytes, with losses that look like learning."""
    layer = nn.Linear(2, 1)
    optimised = adamw(dict(layer.named_parameters()))
    with pytest.raises(PolicyError, match=r"none of the weights that are trained \(weight, bias"):
        descend(optimised, [None, None], rate=1.0, decay=0.0, grad_norm=1.0)
    descend(optimised, [torch.ones(1, 2), None], rate=1.0, decay=0.0, grad_norm=1.0)


ROWS, SCREENS, WIDTH = 3, 2, 5
SCORE = Score(torch.zeros(ROWS), torch.zeros(ROWS), torch.zeros(ROWS, SCREENS, WIDTH), torch.ones(ROWS, SCREENS))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("logprob", torch.zeros(ROWS, 1)),
        ("logprob", torch.zeros(ROWS, dtype=torch.bfloat16)),
        ("entropy", torch.tensor(0.0)),
        ("states", torch.zeros(ROWS, WIDTH)),
        ("mask", torch.ones(ROWS, SCREENS + 1)),
    ],
)
def test_a_score_of_another_shape_or_type_is_refused(name: str, value: torch.Tensor) -> None:
    """(B, 1) minus (B,) is B × B in torch, and was learned from."""
    for mask in (SCORE.mask, SCORE.mask.bool(), SCORE.mask.long()):
        checked(SCORE._replace(mask=mask), ROWS)
    with pytest.raises(PolicyError, match=rf"Score\.{name}"):
        checked(SCORE._replace(**{name: value}), ROWS)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 90)), max_size=8))
def test_passes_take_each_step_once_and_pad_only_what_is_rare(groups: list[tuple[int, int]]) -> None:
    steps = [factories.step(prompt_ids=(5,) * length) for length, count in groups for _ in range(count)]
    found = [list(rows) for rows in passes(steps)]
    assert sorted(row for rows in found for row in rows) == list(range(len(steps)))
    lengths = [[len(steps[row].prompt_ids) for row in rows] for rows in found]
    assert [length for rows in lengths for length in rows] == sorted(len(step.prompt_ids) for step in steps)
    for rows in lengths:
        assert len(rows) <= PASS_ROWS
        assert len(set(rows[LEAST_ROWS - 1 :])) <= 1, "what follows a full enough pass has its length, or is not in it"
    for rows, following in pairwise(lengths):
        assert len(rows) == PASS_ROWS or (len(rows) >= LEAST_ROWS and rows[-1] < following[0])
