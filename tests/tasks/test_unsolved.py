"""Tasks without a success in many attempts: what counts as one task, and when it is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from distrl.tasks.lists import ListSuite, read_lists
from distrl.tasks.suite import suites
from distrl.tasks.unsolved import MIN_ATTEMPTS, Unsolved, unsolved
from distrl.types import Outcome, Split, Task

EXAMPLE = Path(__file__).parents[2] / "docs" / "lists" / "example.jsonl"
FAILED = Outcome.FAILURE


def rounds(count: int, split: Split = Split.TRAIN) -> list[Task]:
    """The tasks of so many rounds through the list."""
    rows = read_lists([EXAMPLE], 10).rows
    suite = ListSuite("example", rows)
    return [suite.task(index, 1, split) for index in range(count * sum(row.split is split for row in rows))]


def test_a_row_that_failed_in_every_round_is_named_and_one_that_succeeded_once_is_not() -> None:
    played = rounds(MIN_ATTEMPTS)
    assert len({task.task_id for task in played}) == len(played)
    attempts = [(task, FAILED) for task in played]
    third = next(n for n, task in enumerate(played) if task.family == "search")
    attempts[third] = (played[third], Outcome.SUCCESS)
    assert [(each.instruction, each.split, each.attempts) for each in unsolved(attempts)] == [
        ("open notes and write a note saying red lamp", Split.TRAIN, MIN_ATTEMPTS),
        ("in settings turn on wifi sync", Split.TRAIN, MIN_ATTEMPTS),
    ]


def test_fewer_attempts_say_nothing_and_those_without_a_verdict_are_none() -> None:
    test = rounds(MIN_ATTEMPTS, Split.TEST)
    assert unsolved((task, FAILED) for task in test[:-2]) == ()
    nothing = [(task, outcome) for task in test for outcome in (Outcome.UNKNOWN, Outcome.INTERRUPTED)]
    assert unsolved([*nothing, *((task, FAILED) for task in test[:-2])]) == ()


def test_rows_that_say_the_same_of_another_phone_are_two() -> None:
    task = rounds(1, Split.TEST)[0]
    other = replace(task, setup="{}")
    half = MIN_ATTEMPTS // 2
    assert unsolved([(task, FAILED)] * half + [(other, FAILED)] * half) == ()
    assert len(unsolved([(task, FAILED)] * MIN_ATTEMPTS + [(other, FAILED)] * MIN_ATTEMPTS)) == 2


def test_rows_of_several_episodes_that_ask_the_same_are_one() -> None:
    task = rounds(1, Split.TEST)[0]
    episodes = [replace(task, params={**task.params, "episode_id": str(n)}) for n in range(MIN_ATTEMPTS)]
    (found,) = unsolved((each, FAILED) for each in episodes)
    assert (found.instruction, found.attempts) == (task.instruction, MIN_ATTEMPTS)
    other = [replace(each, params={**each.params, "who": str(n)}) for n, each in enumerate(episodes)]
    assert unsolved((each, FAILED) for each in other) == ()


def test_a_built_in_suite_is_counted_by_family_whatever_its_tasks_are_about() -> None:
    home = suites()["home"]
    played = [home.task(index, 1, Split.TRAIN) for index in range(MIN_ATTEMPTS * len(home.families))]
    attempts = [(task, FAILED if task.family == "shop" else Outcome.SUCCESS) for task in played]
    assert unsolved(attempts) == (Unsolved("home", "shop", None, "", MIN_ATTEMPTS),)
    held_out = next(home.task(n, 1, Split.TEST) for n in range(9) if home.families[n % 7] == "shop")
    assert unsolved([*attempts, (held_out, Outcome.SUCCESS)]) == (), "who does one of them shows that it can be done"
