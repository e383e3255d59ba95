"""The suites of the paper: finite lists, disjoint entities, a check and a script for every task."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import get_args

import pytest
from distrl.config import Config, FeederSettings
from distrl.errors import ConfigError
from distrl.feeder.run import new_state
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.tasks.entities import SHARES
from distrl.tasks.list_report import folded
from distrl.tasks.listed import ListedSuite
from distrl.tasks.oracle import ImperfectScript, next_action
from distrl.tasks.outcome import done
from distrl.tasks.persistent_state import KEPT, PASSING, TOGETHER
from distrl.tasks.rollout import play, prepared
from distrl.tasks.suite import held_out_pairs, suite_named, suites
from distrl.text import plain_words
from distrl.types import Action, ActionKind, Split, Task
from simphone.machine import fresh
from simphone.state import ADVERT, State, Value, words_of

LISTED = {name: suite for name, suite in suites().items() if isinstance(suite, ListedSuite)}
SIZES = {
    "general": (600, 128, 15),
    "webshop": (500, 128, 20),
    "install": (160, 128, 20),
    "googleapps": (160, 128, 20),
}
DIGESTS = {
    "general": "2ef2b88a2f54a483",
    "webshop": "d73c3241507fe88d",
    "install": "c79934c24817be5f",
    "googleapps": "e203fe3e3d62684a",
}
"""Of every entry: results on a suite can be compared for as long as it stays what it is."""
PARTS = list(itertools.product(sorted(LISTED), Split))
READABLE_WORDS = 18
"""Of an instruction, beside the longest two earlier actions: the prompt cuts the rest off."""


def tasks_of(name: str, split: Split) -> list[Task]:
    return [LISTED[name].task(index, 0, split) for index in range(len(LISTED[name].entries(split)))]


def test_the_setting_names_every_suite_and_a_wrong_name_is_refused_with_them() -> None:
    assert {*get_args(FeederSettings.model_fields["suite"].annotation)} == suites().keys()
    with pytest.raises(ConfigError, match="no suite 'hotel'") as refused:
        suite_named("hotel")
    for name in suites():
        assert name in refused.value.hint


@pytest.mark.parametrize("name", sorted(LISTED))
def test_sizes_and_steps_are_the_papers(name: str) -> None:
    suite = LISTED[name]
    train, test, steps = SIZES[name]
    assert (len(suite.entries(Split.TRAIN)), len(suite.entries(Split.TEST))) == (train, test)
    assert {task.max_steps for task in tasks_of(name, Split.TEST)} == {steps}


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_lists_are_those_that_results_were_measured_on(name: str) -> None:
    entries = "\n".join(str(astuple(entry)) for split in Split for entry in LISTED[name].entries(split))
    assert hashlib.sha256(entries.encode()).hexdigest()[:16] == DIGESTS[name]


@pytest.mark.parametrize(("name", "split"), PARTS)
def test_the_oracle_does_every_task_which_is_not_done_before(name: str, split: Split) -> None:
    for task in tasks_of(name, split):
        assert not done(task, prepared(task)), task
        trial = play(task)
        assert trial.done, task
        assert 2 <= trial.steps < task.max_steps, task


@pytest.mark.parametrize("name", sorted(LISTED))
def test_the_oracle_closes_popups_and_mends_what_another_hand_did(name: str) -> None:
    suite = LISTED[name]
    for index in range(2 * len(suite.families)):
        task = replace(suite.task(index, 1, Split.TRAIN), max_steps=60)
        script = ImperfectScript(index, random_share=0.2, stop_share=0.0)
        first = iter(range(6))

        def act(task: Task, now: State, script: ImperfectScript = script, first: Iterator[int] = first) -> Action:
            return next_action(task, now) if next(first, None) is None else script.act(task, now.to_json())[0]

        assert play(task, popup_probability=0.1, script=act).done, task


def spoilt(state: State) -> Iterator[tuple[str, State]]:
    """The same phone with one more thing done on it, each thing that stays once."""
    for app, name in KEPT:
        value = state.of(app)[name]
        other: Value = (*value, "x") if isinstance(value, tuple) else not value if isinstance(value, bool) else "x"
        yield f"{app}.{name}", state.remember(app, **{name: other})
    yield "timer", state.remember("clock", left=30, minutes="1")
    yield "player", state.remember("media", track="x", playing=True)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_whatever_else_is_changed_spoils_a_task_and_so_does_what_lies_in_front(name: str) -> None:
    suite = LISTED[name]
    for index in range(len(suite.families)):
        task = suite.task(index, 2, Split.TRAIN)
        final = play(task).final
        assert done(task, final)
        for what, state in spoilt(final):
            assert not done(task, state), (what, task)
        for covered in (replace(final, dialog="sale"), replace(final, loading=1), replace(final, screen=ADVERT)):
            assert not done(task, covered), task


def test_what_was_typed_may_begin_with_a_capital() -> None:
    task = next(t for t in tasks_of("general", Split.TEST) if t.family == "note")
    final = play(task).final
    assert done(
        task, final.remember("notes", notes=tuple(each.title() for each in words_of(final.of("notes")["notes"])))
    )


def test_a_contact_may_be_saved_with_a_capital_wherever_it_stands_in_the_list() -> None:
    def act(task: Task, now: State) -> Action:
        action = next_action(task, replace(now, typed=now.typed.lower()))
        return replace(action, text=action.text.capitalize()) if action.kind is ActionKind.TYPE else action

    tasks = [task for task in tasks_of("general", Split.TRAIN) if task.family == "contact"]
    assert len(tasks) == 30
    for task in tasks:
        trial = play(task, script=act)
        assert trial.done, task.instruction
        assert task.params["text"].capitalize() in words_of(trial.final.of("contacts")["people"])


@pytest.mark.parametrize("name", sorted(LISTED))
def test_no_entity_of_one_split_is_drawn_or_said_in_another(name: str) -> None:
    suite = LISTED[name]
    pools = {pool.name: pool for kind in suite.kinds for pool in kind.about.values()}
    drawn: dict[tuple[str, Split], set[str]] = {}
    by_name = {kind.name: kind for kind in suite.kinds}
    for split in Split:
        for entry in suite.entries(split):
            for param, pool in by_name[entry.family].about.items():
                drawn.setdefault((pool.name, split), set()).add(entry.params[param])
    for pool in pools.values():
        for split in Split:
            assert drawn.get((pool.name, split), set()) <= set(pool.by_split[split])
        for one, other in itertools.combinations(Split, 2):
            assert not set(pool.by_split[one]) & set(pool.by_split[other]), pool.name


def test_nothing_that_any_suite_holds_out_is_said_in_the_training_of_any() -> None:
    pools = {pool.name: pool for suite in LISTED.values() for kind in suite.kinds for pool in kind.about.values()}
    home = [suites()["home"].task(index, 0, Split.TRAIN).instruction for index in range(2000)]
    listed = [entry.instruction for suite in LISTED.values() for entry in suite.entries(Split.TRAIN)]
    said = f" {' | '.join(' '.join(plain_words(each)) for each in (*home, *listed))} "
    held = {entity.lower() for pool in pools.values() for split in SHARES for entity in pool.by_split[split]}
    assert len(held) > 200
    assert [entity for entity in held if f" {entity} " in said] == []
    assert all(f" {entity.lower()} " in said for entity in pools["item"].by_split[Split.TRAIN]), (
        "what is trained on is found"
    )
    assert {" ".join(pair) for pair in held_out_pairs()} >= {entity for entity in held if entity.count(" ") == 1}


@pytest.mark.parametrize("name", sorted(LISTED))
def test_no_two_tasks_of_a_list_and_none_of_two_splits_say_the_same(name: str) -> None:
    said = Counter(folded(entry.instruction) for split in Split for entry in LISTED[name].entries(split))
    assert [each for each, times in said.items() if times > 1] == []


@pytest.mark.parametrize(("name", "split"), PARTS)
def test_an_index_is_one_task_with_an_id_and_a_phone_of_its_own(name: str, split: Split) -> None:
    suite = LISTED[name]
    tasks = [suite.task(index, seed, split) for seed in (0, 5) for index in range(700)]
    assert tasks == [suite.task(index, seed, split) for seed in (0, 5) for index in range(700)]
    assert len({task.task_id for task in tasks}) == len({task.phone_seed for task in tasks}) == len(tasks)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_in_training_families_take_turns_and_each_goes_through_its_list_in_rounds(name: str) -> None:
    suite = LISTED[name]
    for turn, family in enumerate(suite.families):
        listed = Counter(entry.instruction for entry in suite.entries(Split.TRAIN) if entry.family == family)
        size = len(listed)
        played = [suite.task(turn + n * len(suite.families), 3, Split.TRAIN) for n in range(2 * size)]
        assert {task.family for task in played} == {family}
        said = [task.instruction for task in played]
        assert Counter(said[:size]) == Counter(said[size:]) == listed
        assert said[:size] != said[size:]
        assert said != [suite.task(turn + n * len(suite.families), 4, Split.TRAIN).instruction for n in range(2 * size)]


@pytest.mark.parametrize(("name", "split"), [part for part in PARTS if part[1] is not Split.TRAIN])
def test_a_held_out_list_keeps_its_order_and_begins_again(name: str, split: Split) -> None:
    suite = LISTED[name]
    listed = [entry.instruction for entry in suite.entries(split)]
    assert [suite.task(n, seed, split).instruction for seed in (0, 9) for n in range(2 * len(listed))] == 4 * listed


@pytest.mark.parametrize("name", sorted(LISTED))
@pytest.mark.parametrize("curriculum", [False, True])
def test_a_feeder_feeds_it_family_by_family_and_each_task_once(name: str, curriculum: bool) -> None:
    feeder = {"suite": name, "curriculum": curriculum}
    state = new_state(Config.model_validate({"feeder": feeder}))
    fed = []
    for _ in range(5 * len(LISTED[name].families)):
        fed.append(state._next())
        state.facts.see_task(fed[-1])
    assert len({task.task_id for task in fed}) == len(fed)
    assert set(Counter(task.family for task in fed).values()) == {5}


@pytest.mark.parametrize("name", sorted(LISTED))
def test_names_of_families_are_short_since_reports_have_narrow_columns(name: str) -> None:
    assert all(len(family) <= 9 for family in LISTED[name].families)


@pytest.mark.parametrize("name", sorted(LISTED))
def test_a_policy_can_read_each_instruction_and_write_each_text_with_the_words_of_the_suite(name: str) -> None:
    suite = LISTED[name]
    codec = WordTokenizer(sorted({word for text in suite.texts for word in plain_words(text)}))
    for split in Split:
        for task in tasks_of(name, split):
            assert len(plain_words(task.instruction)) <= READABLE_WORDS, task.instruction
            assert plain_words(task.instruction)
    for text in suite.typed:
        assert codec.decode_action(codec.encode_action(Action(ActionKind.TYPE, text=text))).text == text


@pytest.mark.parametrize("name", sorted(LISTED))
def test_a_random_hand_types_texts_of_training_alone(name: str) -> None:
    suite = LISTED[name]
    held = {
        entity.lower()
        for kind in suite.kinds
        for pool in kind.about.values()
        for s in SHARES
        for entity in pool.by_split[s]
    }
    assert suite.typed
    assert [(text, entity) for text in suite.typed for entity in held if f" {entity} " in f" {text} "] == []


def test_each_thing_that_an_app_remembers_is_either_kept_or_passing() -> None:
    remembered = [(app, name) for app, data in fresh(0, {}, 0.0).data.items() for name in data]
    assert sorted([*KEPT, *PASSING, *TOGETHER]) == sorted(remembered)


def test_the_instructions_and_sizes_that_the_page_shows_are_those_of_the_suites() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    shown = re.findall(r"^\| `(\w+)` (\w+) \| (.*) \|$", page, re.MULTILINE)
    assert {name for name, _, _ in shown} == set(LISTED)
    for name, family, instruction in shown:
        assert (family, instruction) in {(e.family, e.instruction) for s in Split for e in LISTED[name].entries(s)}
    sizes = dict(re.findall(r"^\| `(\w+)` \| (\d+ \| \d+ \| \d+ \| \d+) \|", page, re.MULTILINE))
    assert sizes == {
        name: f"{' | '.join(str(suite.size(split)) for split in Split)} | {suite.max_steps}"
        for name, suite in LISTED.items()
    }
