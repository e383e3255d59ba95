from __future__ import annotations

import json
import math

import pytest
from distrl.policy.actions import parse, to_text
from distrl.types import TAP_DISTANCE, Action, ActionKind, Point
from hypothesis import given
from hypothesis import strategies as st

coordinates = st.integers(0, 10_000).map(lambda i: i / 10_000)
points = st.builds(Point, coordinates, coordinates)
swipes = st.tuples(points, points).filter(lambda p: math.hypot(p[0].x - p[1].x, p[0].y - p[1].y) > TAP_DISTANCE)
actions = st.one_of(
    points.map(lambda p: Action(ActionKind.TAP, touch=p)),
    swipes.map(lambda p: Action(ActionKind.SWIPE, touch=p[0], lift=p[1])),
    st.text().map(lambda text: Action(ActionKind.TYPE, text=text)),
    st.text().map(lambda text: Action(ActionKind.INVALID, text=text)),
    st.sampled_from([ActionKind.BACK, ActionKind.HOME, ActionKind.ENTER, ActionKind.COMPLETE]).map(Action),
)


@given(actions)
def test_text_form_round_trips(action: Action) -> None:
    assert parse(to_text(action)) == action


def test_text_form_is_autoui_s() -> None:
    tap = Action(ActionKind.TAP, touch=Point(x=0.25, y=0.5))
    assert to_text(tap) == (
        '"action_type": "DUAL_POINT", "touch_point": "[0.5000, 0.2500]", '
        '"lift_point": "[0.5000, 0.2500]", "typed_text": ""'
    )
    assert '"action_type": "STATUS_TASK_COMPLETE", "touch_point": "[-1.0, -1.0]"' in to_text(
        Action(ActionKind.COMPLETE)
    )


def test_points_closer_than_a_tap_are_a_tap() -> None:
    near = Action(ActionKind.SWIPE, touch=Point(0.5, 0.5), lift=Point(0.5, 0.53))
    assert parse(to_text(near)) == Action(ActionKind.TAP, touch=Point(0.5, 0.5))


@given(st.text())
def test_any_other_text_is_an_invalid_action_that_carries_it(text: str) -> None:
    assert parse(text) == Action(ActionKind.INVALID, text=text)


@pytest.mark.parametrize(
    "change",
    [
        {"action_type": "EXPLODE"},
        {"touch_point": "[0.5, 1.5]"},
        {"touch_point": "[0.5]"},
        {"touch_point": "[NaN, 0.5]"},
        {"touch_point": "[true, 0.5]"},
        {"touch_point": "nowhere"},
        {"touch_point": 3},
        {"touch_point": f"[{'1' * 5000}, 0.5]"},
        {"touch_point": "[" * 100_000},
        {"more": ""},
    ],
)
def test_nearly_an_action_is_invalid(change: dict[str, object]) -> None:
    fields = json.loads("{" + to_text(Action(ActionKind.TAP, touch=Point(0.5, 0.5))) + "}") | change
    assert parse(json.dumps(fields)[1:-1]).kind is ActionKind.INVALID


@pytest.mark.parametrize(
    "text",
    [
        '"action_type": "PRESS_BACK", ' + to_text(Action(ActionKind.HOME)),
        '"action_type": ' + "1" * 5000,
        "[" * 100_000,
    ],
)
def test_a_field_named_twice_and_what_json_refuses_are_invalid(text: str) -> None:
    assert parse(text) == Action(ActionKind.INVALID, text=text)
