from __future__ import annotations

from itertools import pairwise

import factories
from distrl.algorithms.descent import LEAST_ROWS, PASS_ROWS, passes
from hypothesis import given
from hypothesis import strategies as st


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
