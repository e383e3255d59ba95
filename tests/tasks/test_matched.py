"""Rows of a list that a script plays: which script an instruction asks for, and what a row that cannot be done says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from distrl.tasks.lists import read_lists
from distrl.tasks.matched import Played, played, scripts
from distrl.tasks.row import Defaults, Row, row_of
from distrl.tasks.suite import suites
from distrl.types import Split

EXAMPLE = Path(__file__).parents[2] / "docs" / "lists" / "example.jsonl"
ALARM = {"app": "clock", "path": "alarms", "contains": "8 am"}
NOT_SAID = {"level", "begin"}
"""Parameters of built-in tasks that no phrase says and no step needs."""


def row(instruction: str, **fields: Any) -> Row:
    return row_of("mine.jsonl", 1, {"instruction": instruction, **fields}, Defaults("mine", Split.TEST, 12))


def test_every_row_of_the_example_is_done_by_a_script() -> None:
    found = [played(each) for each in read_lists([EXAMPLE], 10).rows]
    assert [(each.script, each.done) for each in found] == [
        ("home toggle", True),
        ("home note", True),
        ("home search", True),
        ("home alarm", True),
        ("home toggle", True),
        ("open", True),
    ]
    assert all(each.steps is not None and each.steps <= each.row.steps for each in found)


@pytest.mark.parametrize("name", suites())
def test_every_instruction_of_a_suite_asks_for_its_own_script(name: str) -> None:
    suite = suites()[name]
    for split in Split:
        for index in range(2 * len(suite.families)):
            task = suite.task(index, 3, split)
            asked = {key: value.casefold() for key, value in task.params.items() if key not in NOT_SAID}
            read = [each.params for each in scripts(task.instruction) if each.name == f"{name} {task.family}"]
            assert any(asked.items() <= each.items() for each in read), task.instruction


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (row("wake me up at 9 am", check=ALARM), "general alarm"),
        (row("wake me up at 8 am", check=ALARM, steps=2), "general alarm"),
        (row("in settings turn on no such switch", check={"screen": "clock/face"}), "home toggle"),
        (row("open clock", check={"screen": "clock/alarms"}), "open"),
    ],
)
def test_a_row_whose_check_does_not_hold_after_its_script_is_not_done(asked: Row, said: str) -> None:
    found = played(asked)
    assert (found.script, found.done, found.steps) == (said, False, None)
    assert found.why == f"its check does not hold within {asked.steps} steps"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (row("tidy up the alarms", check=ALARM), ("", "no script")),
        (row("open mail and read what is new", check={"screen": "mail/letter"}), ("", "no script")),
        (row("in browser look up red lamp and open result 2", check={"screen": "browser/page"}), ("", "no script")),
        (row("wake me up at 8 am"), ("general alarm", "no check: a judge says")),
        (
            row("wake me up at 8 am", check=ALARM, setup={"packages": ["com.android.deskclock"]}),
            ("general alarm", "its setup is for a real phone"),
        ),
    ],
)
def test_a_row_that_no_script_can_be_held_to_is_not_played(asked: Row, said: tuple[str, str]) -> None:
    assert played(asked) == Played(asked, said[0], None, None, said[1])


def test_a_message_is_read_in_every_way_until_the_phone_has_such_a_contact() -> None:
    check = {"app": "messages", "path": "sent", "contains": "anna lee: red lamp"}
    asked = row("in messages tell anna lee red lamp", check=check, setup={"messages": {"contact": "anna lee"}})
    assert played(asked).done, json.dumps([each.params for each in scripts(asked.instruction)])
