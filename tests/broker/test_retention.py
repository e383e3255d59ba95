"""How long a group without members is remembered: what the doctor says of it."""

from __future__ import annotations

import pytest
from distrl.broker.retention import LEAST_MINUTES, forgets


@pytest.mark.parametrize("minutes", [None, LEAST_MINUTES, 525_600])
def test_a_month_or_more_is_long_enough(minutes: int | None) -> None:
    assert forgets(minutes) == ""


def test_kafkas_own_week_is_reported_with_what_comes_of_it_and_the_setting() -> None:
    said = forgets(10_080)
    assert said.startswith("after 7 days without a worker it forgets which tasks were played")
    assert "offsets.retention.minutes to 525600" in said
