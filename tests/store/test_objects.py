from __future__ import annotations

import pytest
from distrl.store.objects import KEY, PREFIX, checked_key, checked_prefix, utc_day
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("at_ms", "day"),
    [(0, "1970-01-01"), (86_399_999, "1970-01-01"), (86_400_000, "1970-01-02"), (1_738_367_999_999, "2025-01-31")],
)
def test_a_day_is_one_of_utc(at_ms: int, day: str) -> None:
    assert utc_day(at_ms) == day


@given(st.text(alphabet="ab./-_\\\n\0~é", max_size=40))
def test_no_key_climbs_hides_or_is_absolute(key: str) -> None:
    if KEY.fullmatch(key):
        assert checked_key(key) == key
        assert all(part and not part.startswith(".") for part in key.split("/"))


@given(st.from_regex(KEY, fullmatch=True), st.data())
def test_every_beginning_of_a_key_that_ends_outside_a_name_is_a_prefix(key: str, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(key)))
    beginning = key[:cut]
    assert PREFIX.fullmatch(beginning)
    assert checked_prefix(beginning) == beginning
