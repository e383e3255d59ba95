"""What the record says of a failed task: which conditions are not met, and how the phone was in the end."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import factories
import pytest
from distrl.tasks.conditions import MAX_TEXT
from distrl.tasks.final_state import LEFT_OUT, MAX_CHARACTERS, final_state
from distrl.tasks.gestures import event_of
from distrl.tasks.oracle import next_action, random_action
from distrl.tasks.outcome import CHECK, checked, succeeded, unmet_by
from distrl.tasks.rollout import play, prepared
from distrl.tasks.suite import SUITES
from distrl.types import Split, Task, Trajectory, Unmet
from distrl.wire.codec import decode, encode
from hypothesis import given
from hypothesis import strategies as st
from simphone.machine import reduce
from simphone.state import ADVERT, State


def task_of(suite: str, family: str) -> Task:
    every = (SUITES[suite].task(index, 0, Split.TRAIN) for index in range(5000))
    return next(task for task in every if task.family == family)


def every_family() -> Iterator[Task]:
    for suite in SUITES.values():
        for family in suite.families:
            yield task_of(suite.name, family)


def unmet(task: Task, state: State) -> list[tuple[str, str]]:
    found = unmet_by(task, state)
    assert found is not None
    return [(each.path, each.rule) for each in found]


@pytest.mark.parametrize("task", list(every_family()), ids=lambda task: f"{task.suite}-{task.family}")
def test_every_family_says_what_is_missing_at_the_start_and_nothing_at_the_end(task: Task) -> None:
    at_first = unmet_by(task, prepared(task))
    assert at_first
    assert not [each for each in at_first if each.rule == "unchanged" or each.wanted == each.found]
    assert unmet_by(task, play(task).final) == ()


@pytest.mark.parametrize(
    ("suite", "family", "value", "conditions"),
    [
        ("home", "alarm", ("clock", "alarms", ()), [("clock.alarms", "equals")]),
        ("home", "search", ("browser", "query", "else"), [("browser.query", "equals")]),
        ("general", "ask", ("browser", "query", "else"), [("browser.query", "has words")]),
        ("general", "flights", ("browser", "query", "from {end} to {start} flights"), [("browser.query", "direction")]),
        ("general", "weather", ("browser", "query", "rain"), [("browser.query", "has words")]),
        ("general", "route", ("maps", "place", "nowhere"), [("maps.place", "equals")]),
        ("general", "alarm", ("notes", "notes", ("a note",)), [("notes.notes", "unchanged")]),
        ("webshop", "select", ("browser", "ware", "else"), [("browser.ware", "equals")]),
        ("install", "remove", ("store", "pending", "else"), [("store.pending", "unchanged")]),
        ("googleapps", "way", ("maps", "going", ""), [("maps.going", "equals")]),
    ],
)
def test_one_wrong_value_is_the_one_condition_that_is_named(
    suite: str, family: str, value: tuple[str, str, str | tuple[str, ...]], conditions: list[tuple[str, str]]
) -> None:
    task = task_of(suite, family)
    app, name, wrong = value
    found = (
        wrong.format(**{key: text.lower() for key, text in task.params.items()}) if isinstance(wrong, str) else wrong
    )
    assert unmet(task, play(task).final.remember(app, **{name: found})) == conditions


def test_what_was_wanted_and_what_was_found_are_json() -> None:
    task = task_of("home", "alarm")
    (one,) = unmet_by(task, play(task).final.remember("clock", alarms=("6 am", "7 “pm”"))) or ()
    assert one == Unmet("clock.alarms", "equals", json.dumps([task.params["time"]]), '["6 am", "7 “pm”"]')


def test_of_ways_that_are_as_good_the_nearest_is_named() -> None:
    """A reply counts as a mail to its writer; what is missing then is the text alone, not another way to send it."""
    task = task_of("googleapps", "compose")
    state = play(task).final
    sent = state.remember("mail", sent=("somebody: hello",))
    assert unmet(task, sent) == [("mail.sent", "equals")]


def test_what_is_in_front_is_named_first_and_the_rest_all_the_same() -> None:
    task = task_of("home", "alarm")
    state = replace(prepared(task), dialog="sale", loading=2)
    assert unmet(task, state) == [("dialog", "equals"), ("loading", "equals"), ("clock.alarms", "equals")]
    assert unmet(task, replace(play(task).final, screen=ADVERT)) == [("screen", "lacks")]


def test_the_conditions_of_a_list_are_named_like_those_of_a_family() -> None:
    check = [{"screen": "notes/list"}, {"app": "settings", "path": "on", "contains": "wifi sync"}]
    task = factories.task(suite="mine", params={CHECK: json.dumps(check)})
    state = replace(prepared(task), loading=1)
    assert unmet(task, state.remember("settings", on=())) == [("screen", "equals"), ("settings.on", "contains")]
    assert unmet(task, state.remember("settings", on=("wifi sync",)).goto("notes/list")) == []
    assert checked(replace(task, params={}), state.to_json()) is None


@given(st.text(max_size=3000))
def test_no_text_of_a_phone_makes_a_record_large(typed: str) -> None:
    task = task_of("general", "note")
    state = play(task).final.remember("notes", notes=(typed,) * 9)
    found = checked(task, replace(state, typed=typed, toast=typed[:200]).to_json())
    assert found is not None
    assert not found.done
    assert all(len(each.wanted) <= MAX_TEXT and len(each.found) <= MAX_TEXT for each in found.unmet)
    assert len(found.final_state) <= MAX_CHARACTERS
    assert json.loads(found.final_state)["screen"] == state.screen


def test_half_a_surrogate_pair_in_a_phone_s_state_can_be_written() -> None:
    """JSON can spell one, and a record cannot hold it."""
    task = task_of("general", "note")
    state = play(task).final.remember("notes", notes=("\ud83d",))
    found = checked(task, replace(state, typed="\ud83d").to_json())
    assert found is not None
    written = factories.trajectory(final_state=found.final_state, unmet=found.unmet)
    assert decode(encode(written), Trajectory) == written


@pytest.mark.parametrize("suite", sorted(SUITES))
def test_the_final_state_is_the_start_but_for_what_the_record_holds(suite: str) -> None:
    for index in range(6):
        task = SUITES[suite].task(index, 1, Split.TRAIN)
        rng, state = random.Random(index), prepared(task, 0.1)
        for _ in range(task.max_steps):
            right = next_action(task, state) if rng.random() < 0.6 else random_action(rng, SUITES[suite].typed)
            event = event_of(right)
            state = state if event is None else reduce(state, event)
        found = checked(task, state.to_json())
        assert found is not None
        assert found.done is succeeded(task, state.to_json())
        kept = json.loads(found.final_state)
        start = json.loads(json.dumps(prepared(task).to_json()))["data"]
        for app, values in kept["data"].items():
            assert all(start[app][name] != value for name, value in values.items()), "only what differs"
            start[app] |= values
        assert start == json.loads(json.dumps(state.to_json()))["data"]
        assert (kept["screen"], kept.get("dialog", "")) == (state.screen, state.dialog)


def test_the_longest_values_are_left_out_first() -> None:
    task = factories.task()
    state = prepared(task).remember("notes", notes=("n" * MAX_CHARACTERS,)).remember("clock", alarms=("8 am",))
    kept = json.loads(final_state(task, state))["data"]
    assert kept == {"notes": {"notes": LEFT_OUT}, "clock": {"alarms": ["8 am"]}}


@pytest.mark.parametrize("text", ["x", '"', "\x01", "ß", "\ud83d"], ids=repr)
def test_the_final_state_of_a_phone_with_long_texts_is_bounded(text: str) -> None:
    task, long = factories.task(), text * 5_000
    start = prepared(task)
    front = {"screen": long, "dialog": long, "typed": long, "toast": long}
    assert json.loads(final_state(task, replace(start, **front))) == {**dict.fromkeys(front, LEFT_OUT), "data": {}}
    alarms = start.remember("clock", alarms=("8 am",))
    kept = json.loads(final_state(task, replace(alarms, screen=long)))
    assert kept == {"screen": LEFT_OUT, "data": {"clock": {"alarms": ["8 am"]}}}
    named = replace(start, screen=long, data={**start.data, long: {"name": 1}})
    assert json.loads(final_state(task, named)) == {"screen": LEFT_OUT}


@pytest.mark.parametrize("setup", ["{", "[]", '{"camera": {}}', "[" * 100_000, '{"clock": 3}', "null"], ids=range(6))
def test_a_setup_that_no_phone_takes_leaves_the_start_of_the_seed(setup: str) -> None:
    task = factories.task(setup=setup)
    assert json.loads(final_state(task, prepared(factories.task())))["data"] == {}
