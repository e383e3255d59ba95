"""Other ways to do a task than the script's: those that are as good, and those that only look alike."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distrl.phone.apps.contacts import number_of
from distrl.phone.machine import Open, reduce
from distrl.tasks.outcome import done
from distrl.tasks.suite import suites
from distrl.tasks.trial import play, prepared
from distrl.types import Split, Task
from phone.hand import touch


def tasks_of(suite: str, family: str) -> Iterator[Task]:
    every = (suites()[suite].task(index, 0, Split.TEST) for index in range(5000))
    return (task for task in every if task.family == family)


def task_of(suite: str, family: str) -> Task:
    return next(tasks_of(suite, family))


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


def dialled(task: Task, digits: str) -> bool | None:
    pad = reduce(prepared(task), Open("phone"))
    return done(task, touch(pad, *(f"key {digit}" for digit in digits), "call", "allow"))


def test_a_person_may_be_called_by_their_number() -> None:
    task = task_of("general", "call")
    number = number_of(task.params["person"])
    assert dialled(task, number) is True
    assert dialled(task, number[:-1]) is False
    assert dialled(task, f"{number}1") is False
