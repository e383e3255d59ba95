import hashlib
import json
import math
import random
from collections import Counter
from itertools import pairwise

import pytest
from distrl.tasks.entities import ENTITIES, assigned, held_out_pairs
from distrl.tasks.oracle import ImperfectScript, oracle, random_action, random_likelihood
from distrl.tasks.outcome import done, succeeded
from distrl.tasks.rollout import play, prepared
from distrl.tasks.scripted_actions import COMPLETE
from distrl.tasks.suite import suites
from distrl.types import Action, ActionKind, Split, Task
from distrl.wire.convert import to_datum
from simphone.state import State
from simphone.words import ALL

HOME = suites()["home"]
TASKS = "91fbd1802e0bdfb406c6046e5e15a10476c64e6e2df7eee62d2090813866232e"
SCRIPTED = "c3f281e8166ce5a4eeac2114c252d50cf39508fe0a19e4d4e34a5d3705d4fdf3"
"""Digests of the first tasks, and of what the scripts do about them, taken before there was any other suite."""


def test_the_tasks_are_those_that_the_base_model_and_every_run_so_far_know() -> None:
    tasks = [HOME.task(i, seed, split) for split in Split for seed in (0, 1, 7919) for i in range(70)]
    said = "\n".join(json.dumps(to_datum(task), sort_keys=True) for task in tasks)
    assert hashlib.sha256(said.encode()).hexdigest() == TASKS


def test_the_script_goes_about_them_and_errs_as_it_always_did() -> None:
    seen = hashlib.sha256()
    for index in range(70):
        task, script = HOME.task(index, 0, Split.TRAIN), ImperfectScript(index)

        def act(task: Task, now: State, script: ImperfectScript = script) -> Action:
            right = oracle(task, now.to_json())
            drawn, logprob = script.act(task, now.to_json())
            seen.update(f"{right} {drawn} {logprob:.9f}\n".encode())
            return right

        seen.update(str(play(task, popup_probability=0.1, script=act).done).encode())
    assert seen.hexdigest() == SCRIPTED


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("popups", [0.0, 0.1])
def test_the_oracle_does_every_task_in_three_to_eight_steps_on_a_quiet_phone(split: Split, popups: float) -> None:
    for index in range(140):
        task = HOME.task(index, 5, split)
        trial = play(task, popups)
        assert trial.done, task
        assert popups or 3 <= trial.steps <= 8, task


@pytest.mark.parametrize("split", list(Split))
def test_no_task_is_done_before_it_is_begun(split: Split) -> None:
    for index in range(140):
        task = HOME.task(index, 6, split)
        assert not done(task, prepared(task)), task


def test_an_open_popup_is_no_success() -> None:
    task = HOME.task(0, 0, Split.TRAIN)
    assert not succeeded(task, {**play(task).final.to_json(), "dialog": "sale"})


def test_switching_a_second_switch_spoils_a_toggle() -> None:
    task = next(t for t in (HOME.task(7 * i, 0, Split.TRAIN) for i in range(50)) if t.family == "toggle")
    state = play(task).final.to_json()
    settings = state["data"]["settings"]
    other = next(name for name in settings["shown"] if name != task.params["switch"])
    on = sorted(set(settings["on"]) ^ {other})
    assert not succeeded(task, {**state, "data": {**state["data"], "settings": {**settings, "on": on}}})


def named(task: Task) -> set[tuple[str, str]]:
    """The entities that a task's instruction names."""
    words = task.instruction.split()
    every = {pair for pairs in ENTITIES.values() for pair in pairs}
    return {pair for pair in pairwise(words) if pair in every}


def test_no_entity_of_one_split_is_named_in_another() -> None:
    seen = {split: set().union(*(named(HOME.task(i, 1, split)) for i in range(2000))) for split in Split}
    assert all(len(entities) >= 12 for entities in seen.values()), "every split has something to say"
    assert not seen[Split.TRAIN] & seen[Split.TEST]
    assert not seen[Split.TRAIN] & seen[Split.VALIDATION]
    assert not seen[Split.VALIDATION] & seen[Split.TEST]
    assert seen[Split.TEST] | seen[Split.VALIDATION] <= held_out_pairs()
    assert not seen[Split.TRAIN] & held_out_pairs()


@pytest.mark.parametrize("kind", sorted(ENTITIES))
def test_every_entity_is_assigned_once_and_the_words_of_held_out_ones_are_known_from_training(kind: str) -> None:
    by_split = assigned(kind)
    assert Counter(pair for part in by_split.values() for pair in part) == Counter(ENTITIES[kind])
    known = {word for pair in by_split[Split.TRAIN] for word in pair}
    assert {word for pair in ENTITIES[kind] for word in pair} == known


def test_tasks_are_the_same_every_time_and_differ_by_index_seed_and_split() -> None:
    assert HOME.task(3, 0, Split.TRAIN) == HOME.task(3, 0, Split.TRAIN)
    tasks = [HOME.task(i, seed, split) for i in range(50) for seed in (0, 1) for split in Split]
    assert len({task.task_id for task in tasks}) == len(tasks) == len({task.phone_seed for task in tasks})
    assert {task.family for task in tasks} == set(HOME.families)
    assert all(set(task.instruction.split()) <= set(ALL) for task in tasks)


def test_the_imperfect_script_errs_as_often_as_it_says_and_knows_how_likely_each_action_was() -> None:
    task = HOME.task(1, 0, Split.TRAIN)
    state = prepared(task).to_json()
    right = oracle(task, state)
    script = ImperfectScript(3)
    taken = [script.act(task, state) for _ in range(4000)]
    share = {
        name: sum(test(a) for a, _ in taken) / len(taken)
        for name, test in {"right": lambda a: a == right, "stop": lambda a: a == COMPLETE}.items()
    }
    assert share["right"] == pytest.approx(0.86, abs=0.02)
    assert share["stop"] == pytest.approx(0.04, abs=0.015)
    expected = {action: math.exp(logprob) for action, logprob in taken}
    for action, count in Counter(action for action, _ in taken).most_common(3):
        assert count / len(taken) == pytest.approx(expected[action], abs=0.02)
    assert [ImperfectScript(3).act(task, state)] == taken[:1]


def test_a_random_hand_never_types_what_is_held_out() -> None:
    rng = random.Random(0)
    typed = {
        action.text
        for action in (random_action(rng, HOME.typed) for _ in range(20_000))
        if action.kind is ActionKind.TYPE
    }
    assert typed == {" ".join(pair) for pair in assigned("item")[Split.TRAIN]}


def test_random_likelihoods_add_up_to_one() -> None:
    rng = random.Random(0)
    drawn = {random_action(rng, HOME.typed) for _ in range(30_000)}
    assert sum(random_likelihood(each, len(HOME.typed)) for each in drawn) == pytest.approx(1.0, abs=0.01)
    assert random_likelihood(COMPLETE, len(HOME.typed)) == 0
