"""An episode's row in the index of the pages."""

from __future__ import annotations

import json

import factories
from distrl.types import LogPosition, Outcome, Unmet
from distrl.view.rows import NAME_CHARACTERS, episode_row


def test_conditions_that_are_equal_once_they_are_shortened_are_one() -> None:
    """Else an episode would count twice among those that did not meet it."""
    unmet = tuple(Unmet("x" * NAME_CHARACTERS + end, "equals", "1", "2") for end in "ab")
    made = factories.trajectory(factories.task("a"), [factories.step()], outcome=Outcome.FAILURE, unmet=unmet)
    assert len(json.loads(episode_row("trajectories", LogPosition("t", 0, 0), made).conditions)) == 1
