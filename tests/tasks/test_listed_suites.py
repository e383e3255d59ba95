"""The suites of the paper: finite lists, disjoint entities, a check and a script for every task."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace

import pytest
from distrl.phone.machine import fresh
from distrl.policy.vocabulary import Codec, plain_words
from distrl.tasks.entities import SHARES
from distrl.tasks.kept import KEPT, PASSING
from distrl.tasks.listed import ListedSuite
from distrl.tasks.oracle import ImperfectScript, oracle
from distrl.tasks.outcome import succeeded
from distrl.tasks.suite import suites
from distrl.tasks.survey import folded
from distrl.tasks.trial import play, prepared
from distrl.types import Action, ActionKind, Split, Task

LISTED = {name: suite for name, suite in suites().items() if isinstance(suite, ListedSuite)}
SIZES = {
    "general": (300, 80, 15),
}
PARTS = list(itertools.product(sorted(LISTED), Split))
READABLE_WORDS = 18
"""Of an instruction, beside the longest two earlier actions: the prompt cuts the rest off."""


def tasks_of(name: str, split: Split) -> list[Task]:
    return [LISTED[name].task(index, 0, split) for index in range(len(LISTED[name].entries(split)))]


@pytest.mark.parametrize("name", sorted(LISTED))
def test_sizes_and_steps_are_the_papers(name: str) -> None:
    suite = LISTED[name]
    train, test, steps = SIZES[name]
    assert (len(suite.entries(Split.TRAIN)), len(suite.entries(Split.TEST))) == (train, test)
    assert {task.max_steps for task in tasks_of(name, Split.TEST)} == {steps}


@pytest.mark.parametrize(("name", "split"), PARTS)
def test_the_oracle_does_every_task_which_is_not_done_before(name: str, split: Split) -> None:
    for task in tasks_of(name, split):
        assert not succeeded(task, prepared(task).state()), task
        trial = play(task)
        assert trial.done, task
        assert 2 <= trial.steps <= 0.8 * task.max_steps, (trial, task)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_oracle_closes_popups_and_mends_what_another_hand_did(name: str) -> None:
    suite = LISTED[name]
    for index in range(2 * len(suite.families)):
        task = replace(suite.task(index, 1, Split.TRAIN), max_steps=60)
        script = ImperfectScript(index, random_share=0.2, stop_share=0.0)
        first = iter(range(6))

        def act(task: Task, state: object, script: ImperfectScript = script, first: object = first) -> Action:
            return script.act(task, state)[0] if next(first, None) is not None else oracle(task, state)  # type: ignore

        assert play(task, popup_probability=0.1, script=act).done, task


@pytest.mark.parametrize("name", sorted(LISTED))
def test_no_entity_of_one_split_is_drawn_or_said_in_another(name: str) -> None:
    suite = LISTED[name]
    decks = {deck.name: deck for kind in suite.kinds for deck in kind.about.values()}
    drawn: dict[tuple[str, Split], set[str]] = {}
    by_name = {kind.name: kind for kind in suite.kinds}
    for split in Split:
        for entry in suite.entries(split):
            for param, deck in by_name[entry.family].about.items():
                drawn.setdefault((deck.name, split), set()).add(entry.params[param])
    for deck in decks.values():
        for split in Split:
            assert drawn.get((deck.name, split), set()) <= set(deck.hands[split])
        for one, other in itertools.combinations(Split, 2):
            assert not set(deck.hands[one]) & set(deck.hands[other]), deck.name
    for split in Split:
        said = "\n".join(folded(entry.instruction) for entry in suite.entries(split))
        for deck in decks.values():
            others = {card for other in Split if other is not split for card in deck.hands[other]}
            assert [c for c in others if re.search(rf"(?<!\w){re.escape(c.lower())}(?!\w)", said)] == [], split


@pytest.mark.parametrize("name", sorted(LISTED))
def test_no_two_tasks_of_a_list_and_none_of_two_splits_say_the_same(name: str) -> None:
    said = Counter(folded(entry.instruction) for split in Split for entry in LISTED[name].entries(split))
    assert [each for each, times in said.items() if times > 1] == []


@pytest.mark.parametrize(("name", "split"), PARTS)
def test_an_index_is_one_task_with_an_id_and_a_phone_of_its_own(name: str, split: Split) -> None:
    suite = LISTED[name]
    size = len(suite.entries(split))
    tasks = [suite.task(index, seed, split) for seed in (0, 5) for index in range(2 * size + 3)]
    assert tasks == [suite.task(index, seed, split) for seed in (0, 5) for index in range(2 * size + 3)]
    assert len({task.task_id for task in tasks}) == len({task.phone_seed for task in tasks}) == len(tasks)
    whole = Counter(entry.instruction for entry in suite.entries(split))
    assert Counter(task.instruction for task in tasks[:size]) == whole
    assert Counter(task.instruction for task in tasks[size : 2 * size]) == whole
    orders = {tuple(task.instruction for task in tasks[at : at + size]) for at in (0, size, 2 * size + 3)}
    assert len(orders) == (3 if split is Split.TRAIN else 1), "training in another order each round, under each seed"


@pytest.mark.parametrize("name", sorted(LISTED))
def test_families_take_turns_in_training_so_that_a_curriculum_can_weigh_them(name: str) -> None:
    suite = LISTED[name]
    assert all(len(family) <= 9 for family in suite.families), "reports have narrow columns"
    for index in range(3 * len(suite.families)):
        assert suite.task(index, 3, Split.TRAIN).family == suite.families[index % len(suite.families)]


@pytest.mark.parametrize("name", sorted(LISTED))
def test_a_policy_can_read_each_instruction_and_write_each_text_with_the_words_of_the_suite(name: str) -> None:
    suite = LISTED[name]
    codec = Codec(sorted(words_of(suite)))
    for split in Split:
        for task in tasks_of(name, split):
            assert len(plain_words(task.instruction)) <= READABLE_WORDS, task.instruction
            assert plain_words(task.instruction)
    for text in suite.typed:
        assert codec.decode_action(codec.encode_action(Action(ActionKind.TYPE, text=text))).text == text


def words_of(suite: ListedSuite) -> set[str]:
    texts = [entry.instruction for split in Split for entry in suite.entries(split)] + list(suite.typed)
    return {word for text in texts for word in plain_words(text)}


@pytest.mark.parametrize("name", sorted(LISTED))
def test_a_random_hand_types_texts_of_training_alone(name: str) -> None:
    suite = LISTED[name]
    by_name = {kind.name: kind for kind in suite.kinds}
    held = {
        entry.params[key] for split in SHARES for entry in suite.entries(split) for key in by_name[entry.family].types
    }
    assert suite.typed
    assert not held & set(suite.typed)


def test_each_thing_that_an_app_remembers_is_either_kept_or_passing() -> None:
    remembered = [(app, name) for app, data in fresh(0, {}, 0.0).data.items() for name in data]
    assert sorted([*KEPT, *PASSING]) == sorted(remembered)
