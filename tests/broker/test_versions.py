from __future__ import annotations

import factories
from distrl.broker.versions import newest
from distrl.types import ObjectRef, Version
from hypothesis import given
from hypothesis import strategies as st


def version(number: int, sha256: str = "a") -> Version:
    return factories.version(number, adapter=ObjectRef("adapters/a", sha256, 1))


@given(st.lists(st.integers(0, 20), min_size=1))
def test_the_highest_number_wins_in_whatever_order_they_come(numbers: list[int]) -> None:
    chosen = newest(None, map(version, numbers))
    assert chosen is not None
    assert chosen.version == max(numbers)


def test_a_rollback_is_a_higher_number_that_points_at_older_weights() -> None:
    chosen = newest(version(3, "newer weights"), [version(4, "older weights")])
    assert chosen is not None
    assert chosen.adapter.sha256 == "older weights"


def test_the_first_of_equal_numbers_wins() -> None:
    assert newest(version(3, "first"), [version(3, "second")]) == version(3, "first")


def test_nothing_new_leaves_what_was() -> None:
    assert newest(None, []) is None
    assert newest(version(1), []) == version(1)
