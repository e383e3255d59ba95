"""What holds for every dialect."""

from __future__ import annotations

import math

import pytest
from distrl.errors import PolicyError
from distrl.policy.dialects.registry import DIALECTS
from distrl.policy.dialects.text import LONGEST
from distrl.types import Action, ActionKind, Point, ScreenSize
from hypothesis import given
from hypothesis import strategies as st

from tests.policy.dialects.cases import (
    HOSTILE,
    KEYS,
    SIZES,
    actions,
    gestures,
    grid,
    names,
    sizes,
    typed_texts,
    written,
)

SIZE = SIZES[0]
INVALID = ActionKind.INVALID
each_dialect = pytest.mark.parametrize("name", sorted(DIALECTS))


@given(st.data(), names, sizes)
def test_what_is_written_is_read_as_the_same_action(data: st.DataObject, name: str, size: ScreenSize) -> None:
    action = data.draw(actions(name, size))
    dialect = DIALECTS[name]
    text = dialect.write(action, size)
    assert dialect.parse(text, size) == action
    assert dialect.write(dialect.parse(text, size), size) == text


@given(st.data(), names, sizes)
def test_any_point_moves_by_half_a_cell_at_most(data: st.DataObject, name: str, size: ScreenSize) -> None:
    share = st.floats(0, 1)
    action = data.draw(gestures(name, st.builds(Point, share, share)))
    found = DIALECTS[name].parse(DIALECTS[name].write(action, size), size)
    assert found.kind is action.kind
    columns, rows = grid(name, size)
    for before, after in ((action.touch, found.touch), (action.lift, found.lift)):
        if before is None or after is None:
            assert before is after
        else:
            assert abs(before.x - after.x) <= 0.5 / columns + 1e-12
            assert abs(before.y - after.y) <= 0.5 / rows + 1e-12


@each_dialect
@pytest.mark.parametrize("text", HOSTILE)
def test_typed_text_that_looks_like_an_action_is_typed(name: str, text: str) -> None:
    action = Action(ActionKind.TYPE, text=text)
    assert DIALECTS[name].parse(DIALECTS[name].write(action, SIZE), SIZE) == action


@given(written(), st.sampled_from(["", "\n", "```\n"]))
def test_a_thought_and_a_code_fence_around_an_action_change_nothing(
    case: tuple[str, ScreenSize, Action, str], fence: str
) -> None:
    name, size, action, text = case
    closing = "\n```" if fence.startswith("`") else fence
    if text.startswith("<think>"):
        fence = closing = ""
    assert DIALECTS[name].parse(fence + text + closing, size) == action


@given(st.one_of(st.text(), typed_texts), names, sizes)
def test_any_text_is_an_action_on_the_screen_or_an_invalid_one_that_carries_it(
    text: str, name: str, size: ScreenSize
) -> None:
    assert_is_an_action(DIALECTS[name].parse(text, size), text)


@given(written(), st.data())
def test_half_an_action_is_none(case: tuple[str, ScreenSize, Action, str], data: st.DataObject) -> None:
    name, size, action, text = case
    half = text[: data.draw(st.integers(0, len(text) - 1))]
    found = DIALECTS[name].parse(half, size)
    assert found in (action, Action(INVALID, text=half))


@given(written(), st.data())
def test_a_changed_character_makes_no_action_of_another_kind(
    case: tuple[str, ScreenSize, Action, str], data: st.DataObject
) -> None:
    name, size, action, text = case
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 1))
    put = data.draw(st.one_of(st.sampled_from([*"\"'\\{}()[]<>,:` \n0-.e"]), st.characters(codec="utf-8"), st.just("")))
    changed = text[:at] + put + text[at + cut :]
    found = DIALECTS[name].parse(changed, size)
    assert_is_an_action(found, changed)
    gestures_of_autoui = {ActionKind.TAP, ActionKind.SWIPE}  # told apart by the distance of their points alone
    if not (name == "autoui" and {found.kind, action.kind} <= gestures_of_autoui):
        assert found.kind in (action.kind, INVALID)


@given(st.data(), names, sizes, st.sampled_from(["", " ", "\n", "\n\n", "; ", "Action: ", "\n```\n"]))
def test_two_actions_are_none(data: st.DataObject, name: str, size: ScreenSize, between: str) -> None:
    first, second = (DIALECTS[name].write(data.draw(actions(name, size)), size) for _ in range(2))
    text = first + between + second
    assert DIALECTS[name].parse(text, size) == Action(INVALID, text=text)


def floods() -> list[str]:
    return [
        opening + piece * count
        for opening in (
            "",
            "{",
            '{"action": "tap", "point": ',
            '<tool_call>\n{"name": "mobile_use", "arguments": {"action": "click", "coordinate": ',
            "Action: click(start_box='",
            "Action: type(content='",
            '<answer>do(action="Tap", element=',
            '"action_type": "DUAL_POINT", "touch_point": "',
            "<think>",
        )
        for piece in (
            "[",
            "(",
            "{",
            "9",
            "' ",
            "\\",
            "`",
            "<tool_call>",
            "do(a",
            '{"a":',
            "click(aaaa ",
            "\t",
            "\n```\n",
        )
        for count in (1000, 7000 // len(piece) * 4, 100_000)
    ]


@each_dialect
def test_floods_of_anything_are_invalid(name: str) -> None:
    for text in floods():
        assert DIALECTS[name].parse(text, SIZE) == Action(INVALID, text=text)


@each_dialect
@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "100001", "9" * 5000, "true", '"5"'])
def test_a_coordinate_off_the_screen_is_invalid_and_not_moved_onto_it(name: str, number: str) -> None:
    # The corner (0, 0) is written with a zero in each dialect, and with no other but in a size.
    text = DIALECTS[name].write(Action(ActionKind.TAP, touch=Point(0, 0)), SIZE)
    changed = text.replace("0.0000", "0", 1).replace("0", number, 1)
    assert changed != text
    assert DIALECTS[name].parse(changed, SIZE) == Action(INVALID, text=changed)


@each_dialect
def test_the_corners_of_the_screen_are_on_it(name: str) -> None:
    for x, y in ((0, 0), (1, 0), (0, 1), (1, 1)):
        tap = Action(ActionKind.TAP, touch=Point(x, y))
        assert DIALECTS[name].parse(DIALECTS[name].write(tap, SIZE), SIZE) == tap


@each_dialect
@pytest.mark.parametrize(
    "action",
    [
        Action(INVALID, text="what?"),
        Action(ActionKind.TAP),
        Action(ActionKind.SWIPE, touch=Point(0.1, 0.1)),
        Action(ActionKind.TAP, touch=Point(1.001, 0.5)),
        Action(ActionKind.TAP, touch=Point(0.5, -0.001)),
        Action(ActionKind.SWIPE, touch=Point(0.1, 0.1), lift=Point(math.nan, 0.5)),
        Action(ActionKind.TYPE, text="half a pair \ud83d"),
        Action(ActionKind.TYPE, text="x" * LONGEST),
    ],
    ids=lambda action: action.kind,
)
def test_what_has_no_form_is_not_written(name: str, action: Action) -> None:
    with pytest.raises(PolicyError, match="action"):
        DIALECTS[name].write(action, SIZE)


def test_a_swipe_that_autoui_would_read_as_a_tap_is_not_written() -> None:
    with pytest.raises(PolicyError, match="swipe"):
        DIALECTS["autoui"].write(Action(ActionKind.SWIPE, touch=Point(0.5, 0.5), lift=Point(0.5, 0.51)), SIZE)


@each_dialect
def test_the_instructions_repeated_are_no_action(name: str) -> None:
    text = DIALECTS[name].instructions(SIZE)
    assert DIALECTS[name].parse(text, SIZE) == Action(INVALID, text=text)


@each_dialect
def test_the_instructions_say_how_each_action_is_written(name: str) -> None:
    """The words of each form, without its values, are in the instructions."""
    dialect = DIALECTS[name]
    told = dialect.instructions(SIZE).replace('\\"', '"')
    swipe = Action(ActionKind.SWIPE, touch=Point(0, 0), lift=Point(1, 1))
    for action in (Action(ActionKind.TAP, touch=Point(0, 0)), swipe, Action(ActionKind.TYPE), *KEYS):
        missing = words(dialect.write(action, SIZE)) - words(told)
        assert missing == set(), action.kind


@each_dialect
def test_the_instructions_of_absolute_dialects_alone_depend_on_the_size(name: str) -> None:
    dialect = DIALECTS[name]
    absolute = grid(name, SIZES[0]) != grid(name, SIZES[1])
    assert (dialect.instructions(SIZES[0]) != dialect.instructions(SIZES[1])) == absolute
    if absolute:
        assert {"1080", "2400"} <= words(dialect.instructions(SIZES[0]).replace("x", " "), digits=True)


def words(text: str, *, digits: bool = False) -> set[str]:
    split = "".join(c if c.isalnum() or c == "_" else " " for c in text).split()
    return {word for word in split if digits or not word[0].isdigit()}


def assert_is_an_action(action: Action, text: str) -> None:
    if action.kind is INVALID:
        assert action == Action(INVALID, text=text)
        return
    places = {ActionKind.TAP: 1, ActionKind.SWIPE: 2}.get(action.kind, 0)
    given_points = [point for point in (action.touch, action.lift) if point is not None]
    assert len(given_points) == places
    assert all(0 <= point.x <= 1 and 0 <= point.y <= 1 for point in given_points)
    assert action.kind is ActionKind.TYPE or action.text == ""
    action.text.encode()
