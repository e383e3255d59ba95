"""Text for people."""

from __future__ import annotations

import pytest
from distrl.text import ranges


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([], ""), ([4], "4"), ([0, 1, 2], "0-2"), ([0, 1, 2, 5, 7, 8], "0-2, 5, 7-8")],
)
def test_successive_numbers_are_shown_as_a_range(numbers: list[int], shown: str) -> None:
    assert ranges(iter(numbers)) == shown
