"""Which command a learner that waits for demonstrations names."""

from __future__ import annotations

import pytest
from distrl.config import load
from distrl.tasks.demonstration import publishes_missing

NOWHERE = load(environ={}).devices


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        (["demo-0"], "`distrl demonstrate --count 6` publishes what is missing"),
        (["demo-0", "aitw-17"], "`distrl demonstrate --episodes FOLDER --count 6` publishes what is missing"),
        (["android-control-3"], "`distrl demonstrate --episodes FOLDER --count 6` publishes what is missing"),
        (["aitw-17", "played-0b1e"], "record the others with `distrl phones play --record`"),
    ],
)
def test_where_some_are_there_it_is_the_command_that_made_the_last_of_them(there: list[str], wanted: str) -> None:
    assert publishes_missing(there, NOWHERE, 6) == wanted


@pytest.mark.parametrize(
    "named",
    ["devices.serials=[R58M]", 'devices.emulators={"avd": "a", "count": 1}', 'devices.addresses=["127.0.0.1:26000"]'],
)
def test_where_none_is_there_the_script_is_named_unless_a_phone_is_none_that_it_can_play_on(named: str) -> None:
    said = publishes_missing([], load(sets=[named], environ={}).devices, 6)
    assert "`distrl demonstrate --episodes FOLDER --count 6`" in said
    assert "`distrl phones play --record`" in said
    assert ("on simulated phones `distrl demonstrate --count 6`" in said) == ("addresses" in named)
