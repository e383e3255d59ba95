"""Text for people."""

from __future__ import annotations

import pytest
from distrl.text import numbers_shown


@pytest.mark.parametrize(
    ("numbers", "shown"),
    [([], "none"), ([4], "4"), ([0, 1, 2], "0 to 2"), ([0, 1, 2, 5, 7, 8], "0 to 2, 5, 7 to 8")],
)
def test_successive_numbers_are_shown_as_a_range(numbers: list[int], shown: str) -> None:
    assert numbers_shown(iter(numbers)) == shown
