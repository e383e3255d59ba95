"""Other ways to do a task than the script's: those that are as good, and those that only look alike."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from distrl.tasks.oracle import next_action
from distrl.tasks.outcome import done
from distrl.tasks.rollout import play, prepared
from distrl.tasks.scripted_actions import BACK
from distrl.tasks.suite import suites
from distrl.types import Split, Task
from phone_hand import back, brought, touch, write
from simphone.apps.contacts import number_of
from simphone.apps.mail import sender
from simphone.machine import Open, reduce
from simphone.state import State, words_of


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


def inbox(task: Task) -> State:
    return reduce(prepared(task), Open("mail"))


def replied(state: State, subject: str, text: str) -> State:
    return write(touch(brought(state, f"row {subject}"), f"row {subject}", "reply"), text, "send")


def written(state: State, person: str, text: str) -> State:
    state = touch(state, "new")
    return write(touch(brought(state, f"row {person}"), f"row {person}"), text, "send")


def test_a_reply_is_one_to_the_letter_that_was_asked_about() -> None:
    task = task_of("googleapps", "reply")
    state, asked, text = inbox(task), task.params["mail"], task.params["text"]
    who = sender(state, asked)
    other = next(subject for subject in words_of(state.of("mail")["inbox"]) if subject != asked)
    state = state.remember(
        "mail",
        senders=tuple(
            f"{other}: {who}" if each.startswith(f"{other}: ") else each
            for each in words_of(state.of("mail")["senders"])
        ),
    )
    right, wrong = replied(state, asked, text), replied(state, other, text)
    assert right.of("mail")["sent"] == wrong.of("mail")["sent"]
    assert (done(task, right), done(task, wrong)) == (True, False)
    assert State.from_json(json.loads(json.dumps(right.to_json()))) == right


def known_writer() -> Task:
    """A reply to somebody who is among the contacts, so that a new letter can be written to them as well."""
    for task in tasks_of("googleapps", "reply"):
        state = prepared(task)
        if sender(state, task.params["mail"]) in words_of(state.of("contacts")["people"]):
            return task
    raise AssertionError("no such task")


def test_a_new_letter_to_the_writer_is_no_reply_even_after_theirs_was_read() -> None:
    task = known_writer()
    asked, text = task.params["mail"], task.params["text"]
    who = sender(inbox(task), asked)
    read = back(touch(brought(inbox(task), f"row {asked}"), f"row {asked}"))
    final = written(read, who, text)
    assert final.of("mail")["sent"] == (f"{who}: {text}",)
    assert done(task, final) is False
    assert done(task, replied(inbox(task), asked, text)) is True


def test_the_script_leaves_a_new_letter_to_reply() -> None:
    task = known_writer()
    asked = task.params["mail"]
    read = back(touch(brought(inbox(task), f"row {asked}"), f"row {asked}"))
    row = f"row {sender(read, asked)}"
    begun = touch(brought(touch(read, "new"), row), row)
    assert begun.screen == "mail/write"
    assert next_action(task, begun) == BACK


def test_a_reply_is_a_mail_to_its_writer_too() -> None:
    for task in tasks_of("googleapps", "compose"):
        state, person = inbox(task), task.params["person"]
        theirs = [each for each in words_of(state.of("mail")["inbox"]) if sender(state, each) == person]
        if theirs:
            break
    text = task.params["text"]
    assert done(task, replied(state, theirs[0], text)) is True
    assert done(task, written(state, person, text)) is True
