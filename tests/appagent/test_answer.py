from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from distrl.appagent import answer
from distrl.appagent.answer import (
    LONGEST,
    LONGEST_TYPED,
    ON_ELEMENTS,
    ON_GRID,
    ActionCall,
    ActionEffect,
    AgentAnswer,
    Reflection,
    UnreadError,
)
from distrl.chat.answer import Message
from hypothesis import given
from hypothesis import strategies as st


def read(message: dict[str, Any], forms: Mapping[str, tuple[type, ...]]) -> AgentAnswer:
    return answer.read(Message(**message), forms)


def read_reflection(message: dict[str, Any]) -> Reflection:
    return answer.read_reflection(Message(**message))


def says(action: str, summary: str | None = "tapped it") -> dict[str, Any]:
    last = "" if summary is None else f"\nSummary: {summary}"
    return {"content": f"Observation: a list\nof two lines: yes\nThought: tap it\nAction: {action}{last}"}


@pytest.mark.parametrize(
    ("action", "call"),
    [
        ("tap(3)", ActionCall("tap", (3,))),
        ('text("say \\"hi\\" & $(reboot)")', ActionCall("text", ('say "hi" & $(reboot)',))),
        ('swipe(21, "up", "medium")', ActionCall("swipe", (21, "up", "medium"))),
        ("back()", ActionCall("back")),
        ("home()", ActionCall("home")),
        ("enter()", ActionCall("enter")),
        ("grid()", ActionCall("grid")),
        ("FINISH", ActionCall("FINISH")),
    ],
)
def test_each_action_is_read(action: str, call: ActionCall) -> None:
    assert read(says(action), ON_ELEMENTS).call == call
    as_json = json.dumps({"observation": "o", "thought": "t", "action": action, "summary": "s"})
    assert read({"content": as_json}, ON_ELEMENTS).call == call
    assert read({"content": f"```json\n{as_json}\n```"}, ON_ELEMENTS).call == call


@pytest.mark.parametrize("again", ["action", "Action", "ACTION"])
def test_an_object_that_names_a_part_twice_is_refused(again: str) -> None:
    parts = f'"observation": "o", "thought": "t", "action": "back()", "{again}": "tap(2)", "summary": "s"'
    with pytest.raises(UnreadError, match="names a part twice"):
        read({"content": f"{{{parts}}}"}, ON_ELEMENTS)


def test_the_grid_has_its_own_actions() -> None:
    assert read(says('tap(5, "center")'), ON_GRID).call == ActionCall("tap", (5, "center"))
    assert read(says('swipe(5, "top", 9, "left")'), ON_GRID).call == ActionCall("swipe", (5, "top", 9, "left"))
    for wrong in ("tap(5)", "grid()", 'swipe(5, "up", "long")'):
        with pytest.raises(UnreadError):
            read(says(wrong), ON_GRID)


def test_the_summary_goes_on_and_is_not_needed_at_the_end() -> None:
    assert read(says("tap(1)", "first\nsecond"), ON_ELEMENTS).summary == "first\nsecond"
    assert read(says("FINISH", None), ON_ELEMENTS).summary == ""


@pytest.mark.parametrize(
    "action",
    [
        "tap", "tap()", "tap(three)", "tap(1.0)", "tap(true)", "tap(1, 2)", 'tap("1")', "tap(1); reboot",
        "TAP(1)", "long_press(1)", "text(hello)", "text('hello')", 'text("a\nb")', 'text("a\\u0007")', "finish",
        "swipe(1)", "swipe(1, up, short)", "exec(1)", "", "I would tap element 3", "[" * 10_000,
        "tap(" + "[" * 9_000 + ")", "tap(1) tap(2)",
        f'text("{"a" * (LONGEST_TYPED + 1)}")', "tap(" + "9" * 5_000 + ")",
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_an_action_that_is_none_is_not_guessed(action: str) -> None:
    with pytest.raises(UnreadError) as told:
        read(says(action), ON_ELEMENTS)
    assert len(told.value.raw) <= 300


@pytest.mark.parametrize(
    "message",
    [
        {}, {"content": None}, {"content": 5}, {"content": ["text"]}, {"content": ""}, {"content": "tap(3)"},
        {"content": "Sure! " + says("tap(3)")["content"]}, says("tap(3)", None),
        {"content": says("tap(3)")["content"] + "\nAction: tap(4)"}, {"refusal": "no", **says("tap(3)")},
        {"content": "Action: tap(1)\nObservation: a\nThought: b\nSummary: c"}, {"content": "{" * 5_000},
        {"content": "{}"}, {"content": '{"action": "tap(1)"}'}, {"content": "a" * (LONGEST + 1)},
        {"content": '{"observation": 1, "thought": "", "action": "tap(1)", "summary": ""}'},
    ],
    ids=lambda message: str(message)[:40],
)  # fmt: skip
def test_an_answer_of_another_form_is_none(message: dict[str, Any]) -> None:
    with pytest.raises(UnreadError):
        read(message, ON_ELEMENTS)


def test_half_a_character_reaches_no_record() -> None:
    said = read({"content": json.dumps({**_parts(), "summary": "\ud800"})}, ON_ELEMENTS)
    said.summary.encode()
    with pytest.raises(UnreadError) as told:
        read({"content": "\ud800"}, ON_ELEMENTS)
    told.value.raw.encode()
    try:
        typed = read(says('text("\\ud800")'), ON_ELEMENTS).call.arguments[0]
    except UnreadError:
        return
    typed.encode()


def _parts() -> dict[str, str]:
    return {"observation": "o", "thought": "t", "action": "tap(1)", "summary": "s"}


MESSAGES = st.one_of(
    st.dictionaries(st.sampled_from(["content", "refusal"]), st.one_of(st.none(), st.integers(), st.text())),
    st.builds(says, st.text(), st.one_of(st.none(), st.text())),
    st.builds(lambda parts: {"content": json.dumps(parts)}, st.dictionaries(st.sampled_from([*_parts()]), st.text())),
)


@given(MESSAGES)
def test_whatever_is_said_is_an_action_or_unread(message: dict[str, Any]) -> None:
    for forms in (ON_ELEMENTS, ON_GRID):
        try:
            read(message, forms)
        except UnreadError as error:
            error.raw.encode()
    with suppress(UnreadError):
        read_reflection(message)


def test_a_reflection_is_read() -> None:
    said = {"content": "Decision: CONTINUE\nThought: hm\nDocumentation: opens the list\nof mails"}
    found = read_reflection(said)
    assert (found.verdict, found.documentation) == (ActionEffect.CONTINUE, "opens the list\nof mails")
    assert read_reflection({"content": "Decision: INEFFECTIVE\nThought: same"}).verdict is ActionEffect.INEFFECTIVE


@pytest.mark.parametrize(
    "said",
    ["Decision: MAYBE\nThought: x\nDocumentation: y", "Decision: SUCCESS\nThought: x", "Decision: SUCCESS", "SUCCESS",
     "Decision: SUCCESS\nThought: x\nDocumentation:"],
)  # fmt: skip
def test_a_reflection_of_another_form_is_none(said: str) -> None:
    with pytest.raises(UnreadError):
        read_reflection({"content": said})
