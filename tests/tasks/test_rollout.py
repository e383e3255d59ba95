"""A script on a phone of this process: what counts as a step, as an end, as success."""

from __future__ import annotations

from dataclasses import replace

import pytest
from distrl.tasks.listed import ListedSuite
from distrl.tasks.rollout import play, score
from distrl.tasks.scripted_actions import BACK, COMPLETE
from distrl.tasks.suite import suites
from distrl.types import Action, Split, Task
from simphone.generations import NEWEST
from simphone.state import State

TASK = suites()["home"].task(0, 0, Split.TEST)


def test_a_script_that_gives_up_at_once_has_taken_one_step_and_done_nothing() -> None:
    trial = play(TASK, script=lambda task, now: COMPLETE)
    assert (trial.done, trial.steps, trial.final.clock) == (False, 1, 0)


def test_a_script_that_never_ends_is_stopped_by_the_steps_allowed() -> None:
    def wander(task: Task, now: State) -> Action:
        return BACK

    trial = play(replace(TASK, max_steps=5), script=wander)
    assert (trial.done, trial.steps, trial.final.clock) == (False, 5, 5)


def test_a_score_counts_what_is_done_and_the_steps_of_that_alone() -> None:
    found = score([TASK, replace(TASK, max_steps=1)], 0.0, 0)
    assert (found.tasks, found.done, found.steps) == (2, 1, play(TASK).steps)


@pytest.mark.parametrize("generation", range(1, NEWEST + 1))
def test_the_oracle_does_tasks_of_every_family_in_every_generation(generation: int) -> None:
    for suite in suites().values():
        if isinstance(suite, ListedSuite):
            tasks = [suite.task(index, generation, Split.TRAIN) for index in range(2 * len(suite.families))]
            assert score(tasks, 0.1, generation).done == len(tasks), suite.name
