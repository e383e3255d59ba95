from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest
from distrl.evaluate.touches import RADIUS, arrow_head, place, touch_svg
from distrl.types import Action, ActionKind, Point
from hypothesis import given
from hypothesis import strategies as st

coordinates = st.floats(allow_nan=True, allow_infinity=True)
shares = st.floats(0, 1)


def circles(svg: str) -> list[tuple[float, ...]]:
    return [tuple(float(one.attrib[name]) for name in ("cx", "cy", "r")) for one in ET.fromstring(svg).iter("circle")]


def test_a_tap_is_a_ring_where_it_landed() -> None:
    ring, dot = circles(touch_svg(Action(ActionKind.TAP, Point(0.25, 0.75)), 200, 400))
    assert ring == pytest.approx((50, 300, RADIUS * 200))
    assert dot[:2] == (50, 300)
    assert dot[2] < ring[2]


def test_a_swipe_is_an_arrow_from_touch_to_lift() -> None:
    drawn = ET.fromstring(touch_svg(Action(ActionKind.SWIPE, Point(0.5, 0.8), Point(0.5, 0.2)), 100, 200))
    (line,) = drawn.iter("line")
    assert [line.attrib[name] for name in ("x1", "y1", "x2", "y2")] == ["50.0", "160.0", "50.0", "40.0"]
    (head,) = drawn.iter("polygon")
    corners = [tuple(map(float, pair.split(","))) for pair in head.attrib["points"].split()]
    assert corners[0] == (50, 40)
    assert all(y > 40 for _, y in corners[1:]), "it points up"
    assert drawn.attrib["viewBox"] == "0 0 100 200"


@given(shares, shares, shares, shares)
def test_the_head_of_an_arrow_is_as_long_whatever_its_direction_and_lies_behind_the_tip(
    x: float, y: float, to_x: float, to_y: float
) -> None:
    start, end = (100 * x, 100 * y), (100 * to_x, 100 * to_y)
    if math.dist(start, end) < 1e-3:
        return
    tip, left, right = arrow_head(start, end, 7)
    assert tip == end
    for corner in (left, right):
        assert math.dist(corner, tip) == pytest.approx(7)
        along = (corner[0] - tip[0]) * (start[0] - tip[0]) + (corner[1] - tip[1]) * (start[1] - tip[1])
        assert along > 0
    middle = ((left[0] + right[0]) / 2 - tip[0], (left[1] + right[1]) / 2 - tip[1])
    across = middle[0] * (start[1] - tip[1]) - middle[1] * (start[0] - tip[0])
    assert across == pytest.approx(0, abs=1e-6 * math.dist(start, end) + 1e-9)


@given(coordinates, coordinates, st.one_of(st.none(), st.builds(Point, coordinates, coordinates)))
def test_whatever_a_record_holds_is_drawn_on_the_screen_or_not_at_all(x: float, y: float, lift: Point | None) -> None:
    svg = touch_svg(Action(ActionKind.SWIPE, Point(x, y), lift), 100, 200)
    if math.isnan(x) or math.isnan(y):
        assert svg == ""
        return
    ET.fromstring(svg)
    assert not re.search("nan|inf", svg)
    for cx, cy, _ in circles(svg):
        assert 0 <= cx <= 100
        assert 0 <= cy <= 200


def test_a_swipe_that_does_not_move_is_a_ring() -> None:
    svg = touch_svg(Action(ActionKind.SWIPE, Point(0.5, 0.5), Point(0.5, 0.5)), 100, 200)
    assert len(circles(svg)) == 2
    assert "polygon" not in svg


@pytest.mark.parametrize("kind", [ActionKind.BACK, ActionKind.TYPE, ActionKind.COMPLETE, ActionKind.INVALID])
def test_other_actions_draw_nothing(kind: ActionKind) -> None:
    assert touch_svg(Action(kind, text="x"), 100, 200) == ""


def test_a_place_outside_is_at_the_edge() -> None:
    assert place(Point(-1.0, 2.0), 100, 200) == (0, 200)
    assert place(None, 100, 200) is None
