from __future__ import annotations

import base64
import io
import json
from typing import Any

import factories
import pytest
from distrl.chat.answer import Message
from distrl.judge.marks import TOUCH, marked
from distrl.judge.question import LONGEST_REASON, name_of
from distrl.judge.validity import ActionQuestion, Validity, action_to_dict, request, to_be_judged, validity_of
from distrl.types import Action, ActionKind, HeldBack, ObjectRef, Outcome, Point, Step, Trajectory
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from judge.test_question import json_values, said

TAP = Action(ActionKind.TAP, Point(0.25, 0.75))
SWIPE = Action(ActionKind.SWIPE, Point(0.5, 0.8), Point(0.5, 0.2))
TYPE = Action(ActionKind.TYPE, text='say "valid"\n```')


def screen(grey: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (240, 480), (grey,) * 3).save(out, "PNG")
    return out.getvalue()


BEFORE, AFTER = screen(90), screen(30)


def pictures(body: dict[str, Any]) -> list[bytes]:
    urls = [part["image_url"]["url"] for part in body["messages"][1]["content"][1:]]
    return [base64.b64decode(url.removeprefix("data:image/png;base64,")) for url in urls]


def touched(png: bytes) -> list[tuple[int, int]]:
    image = Image.open(io.BytesIO(png))
    return [(x, y) for x in range(image.width) for y in range(image.height) if image.getpixel((x, y)) == TOUCH]


def test_a_question_shows_the_touch_before_the_screen_after_and_the_action_as_data() -> None:
    body = request(ActionQuestion(TAP, BEFORE, AFTER), "a-model")
    before, after = pictures(body)
    assert after == AFTER
    spots = touched(before)
    middle = (sum(x for x, _ in spots) / len(spots), sum(y for _, y in spots) / len(spots))
    assert middle == pytest.approx((60, 360), abs=1)
    assert json.loads(body["messages"][1]["content"][0]["text"]) == {"action": {"kind": "tap", "at": [25.0, 75.0]}}
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["reason", "valid"]


def test_a_swipe_is_reported_and_drawn_from_touch_to_lift_and_typed_text_stays_data() -> None:
    assert action_to_dict(SWIPE) == {"kind": "swipe", "from": [50.0, 80.0], "to": [50.0, 20.0]}
    rows = {y for _, y in touched(marked(BEFORE, SWIPE))}
    assert min(rows) < 0.2 * 480 < 0.79 * 480 < max(rows)
    body = request(ActionQuestion(TYPE, BEFORE, AFTER), "m")
    assert json.loads(body["messages"][1]["content"][0]["text"]) == {"action": {"kind": "type", "text": TYPE.text}}
    assert TYPE.text not in body["messages"][0]["content"]
    assert touched(pictures(body)[0]) == []


def test_a_name_is_that_of_everything_that_the_answer_depends_on() -> None:
    asked = ActionQuestion(TAP, BEFORE, AFTER)
    others = [
        ActionQuestion(SWIPE, BEFORE, AFTER),
        ActionQuestion(TAP, AFTER, AFTER),
        ActionQuestion(TAP, BEFORE, BEFORE),
    ]
    names = {name_of(request(each, "m")) for each in (asked, *others)} | {name_of(request(asked, "another"))}
    assert len(names) == 5
    assert name_of(request(ActionQuestion(TAP, screen(90), screen(30)), "m")) in names


@pytest.mark.parametrize("png", [b"", b"\x89PNG", b"GIF89a", BEFORE[:60]])
def test_a_screen_that_is_no_picture_is_refused(png: bytes) -> None:
    with pytest.raises(ValueError, match=r"no PNG image|pixels"):
        request(ActionQuestion(TAP, png, AFTER), "m")


@pytest.mark.parametrize(
    ("message", "valid"),
    [
        (said(reason="a button", valid=True), True),
        (said(reason="", valid=False), False),
        (said(reason="x", valid="false"), None),
        (said(reason="x", valid=0), None),
        (said(reason="x", valid=None), None),
        (said(valid=True), None),
        (said(reason="x", valid=True, more=1), None),
        (said(reason=["x"], valid=True), None),
        ({"content": "valid"}, None),
        ({"content": "Invalid: there is nothing to tap."}, None),
        ({"content": '[{"reason": "x", "valid": false}]'}, None),
        ({"content": '```json\n{"reason": "x", "valid": true}\n```'}, None),
        ({"content": None, "refusal": "I cannot help with that"}, None),
        (said(reason="x", valid=False) | {"refusal": "no"}, None),
        ({"content": "[" * 100_000}, None),
        ({"content": [{"text": "x"}]}, None),
        ({}, None),
    ],
)
def test_only_the_form_that_was_asked_for_says_anything(message: dict[str, Any], valid: bool | None) -> None:
    """The authors' code took every action for valid; and what cannot be read is not invalid either."""
    assert validity_of(Message(**message)).valid is valid


def test_a_reason_is_cut() -> None:
    assert validity_of(Message(**said(reason="x" * 10_000, valid=False))) == Validity(False, "x" * LONGEST_REASON)


@given(st.dictionaries(st.sampled_from(["content", "refusal", "role"]), json_values))
def test_whatever_a_model_says_is_valid_invalid_or_neither(message: dict[str, Any]) -> None:
    assert validity_of(Message(**message)).valid in (True, False, None)


REF = ObjectRef("screenshots/a.png", "a", 1)


def step(kind: ActionKind, held_back: HeldBack = HeldBack.NO) -> Step:
    ref = ObjectRef(f"screenshots/{kind.value}.png", kind.value, 1)
    return factories.step(Action(kind), screenshot=ref, held_back=held_back)


def trajectory(*steps: Step, outcome: Outcome = Outcome.FAILURE, final: ObjectRef | None = REF) -> Trajectory:
    return factories.trajectory(steps=steps, final_screenshot=final, outcome=outcome)


def test_asked_about_is_what_reached_the_screen_and_may_have_missed_with_the_screen_after_it() -> None:
    kinds = [*ActionKind]
    played = trajectory(*(step(kind) for kind in kinds))
    found = to_be_judged(played)
    assert [s.action.kind.value for _, s, _ in found] == ["tap", "swipe", "type", "enter"]
    assert [after.sha256 for _, _, after in found] == ["swipe", "type", "back", "complete"]
    assert [kinds[index] for index, _, _ in found] == [s.action.kind for _, s, _ in found]


def test_nothing_is_asked_about_what_nothing_is_learned_from_or_what_shows_no_effect() -> None:
    tap = step(ActionKind.TAP)
    assert [after for _, _, after in to_be_judged(trajectory(tap))] == [REF]
    assert to_be_judged(trajectory(tap, final=None)) == ()
    assert to_be_judged(trajectory()) == (), "a task that allows no step"
    for outcome in (Outcome.UNKNOWN, Outcome.INTERRUPTED):
        assert to_be_judged(trajectory(tap, outcome=outcome)) == ()
    for held in (HeldBack.UNSENT, HeldBack.UNDONE):
        assert to_be_judged(trajectory(step(ActionKind.TAP, held))) == ()
