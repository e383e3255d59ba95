"""Other ways to do a task than the script's: those that are as good, and those that only look alike."""

from __future__ import annotations

import pytest
from distrl.tasks.outcome import done
from distrl.tasks.suite import suites
from distrl.tasks.trial import play
from distrl.types import Split, Task


def task_of(suite: str, family: str, split: Split = Split.TEST) -> Task:
    return next(
        task for task in (suites()[suite].task(index, 0, split) for index in range(700)) if task.family == family
    )


def found_by(task: Task, query: str) -> bool | None:
    return done(task, play(task).final.remember("browser", query=query.format(**task.params)))


@pytest.mark.parametrize(
    ("query", "right"),
    [
        ("flights {start} {end}", True),
        ("Flights from {start} to {end}?", True),
        ("flights to {end} from {start}", True),
        ("from {start} to {end}, flights", True),
        ("flights {end} {start}", False),
        ("flights from {end} to {start}", False),
        ("flights to {start} from {end}", False),
        ("flights to {end}", False),
        ("from {start} to {end}", False),
    ],
)
def test_flights_have_a_direction(query: str, right: bool) -> None:
    assert found_by(task_of("general", "flights"), query) is right


@pytest.mark.parametrize(
    ("query", "right"),
    [
        ("{country} {fact}", True),
        ("What is the {fact} of {country}?", True),
        ("{country}", False),
        ("the {fact} of", False),
    ],
)
def test_a_fact_is_looked_up_with_and_without_small_words(query: str, right: bool) -> None:
    assert found_by(task_of("general", "ask"), query) is right
