"""Keys in a temporary file: a set, and what a full disk says."""

from __future__ import annotations

import pytest
from distrl.errors import StoreError
from distrl.runs.key_set import KeySet
from hypothesis import given
from hypothesis import strategies as st

KEYS = [f"screenshots/2026-01-0{day}/{letter * 64}.png" for day in (1, 2) for letter in "0af"]


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(KEYS))))
def test_it_is_a_set_that_is_read_in_order(steps: list[tuple[bool, str]]) -> None:
    expected: set[str] = set()
    with KeySet() as keys:
        for is_added, key in steps:
            if is_added:
                assert keys.add(key) == (key not in expected)
                expected.add(key)
            else:
                keys.discard(key)
                expected.discard(key)
        assert list(keys) == sorted(expected)


def test_a_full_disk_says_what_does_not_fit_and_which_folder_to_name() -> None:
    with KeySet() as keys:
        keys._do("PRAGMA max_page_count = 4")
        many = (f"screenshots/{number:064x}.png" for number in range(10_000))
        with pytest.raises(StoreError, match=r"list of the run's objects does not fit.*full") as caught:
            any(not keys.add(key) for key in many)
    assert "TMPDIR" in caught.value.hint
