"""Calls to actions, the grid, the pictures: without a model."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest
from distrl.appagent.agent import Agent, on_elements, on_grid, unanswered
from distrl.appagent.answer import DIRECTIONS, DISTANCES, ActionCall, UnreadError
from distrl.appagent.elements import NumberedElement
from distrl.appagent.explore import Exploring, Notebook
from distrl.appagent.grid import PLACES, Grid
from distrl.appagent.tags import LEAST_WIDTH, gridded, size_of, tagged
from distrl.chat.endpoint import NoAnswerError, NoTurnError
from distrl.images import ImageError
from distrl.policy.actions import parse, to_text
from distrl.types import TAP_DISTANCE, Action, ActionKind, HeldBack, Point
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

SIZE = (1080, 2400)
OK = NumberedElement("ok", (0, 0, 100, 200), "Button", "ok", None)


def png(size: tuple[int, int]) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (90, 120, 90)).save(out, "PNG")
    return out.getvalue()


def test_a_tap_is_in_the_middle_of_its_element() -> None:
    assert on_elements(ActionCall("tap", (1,)), [OK], SIZE) == Action(
        ActionKind.TAP, touch=Point(50 / 1080, 100 / 2400)
    )


def test_keys_words_and_the_end() -> None:
    for call, action in [
        (ActionCall("back"), Action(ActionKind.BACK)),
        (ActionCall("home"), Action(ActionKind.HOME)),
        (ActionCall("enter"), Action(ActionKind.ENTER)),
        (ActionCall("FINISH"), Action(ActionKind.COMPLETE)),
        (ActionCall("text", ("; reboot",)), Action(ActionKind.TYPE, text="; reboot")),
    ]:
        assert on_elements(call, [], SIZE) == action == on_grid(call, Grid.over(SIZE))


@pytest.mark.parametrize("number", [0, -1, 2, 10**30])
def test_an_element_that_is_not_there_is_none(number: int) -> None:
    with pytest.raises(UnreadError, match="no element"):
        on_elements(ActionCall("tap", (number,)), [OK], SIZE)


@pytest.mark.parametrize("rest", [("sideways", "short"), ("up", "far"), ("Up", "short")])
def test_a_swipe_that_goes_nowhere_is_none(rest: tuple[str, str]) -> None:
    with pytest.raises(UnreadError, match="no swipe"):
        on_elements(ActionCall("swipe", (1, *rest)), [OK], SIZE)


@given(
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from(DIRECTIONS),
    st.sampled_from(DISTANCES),
    st.sampled_from([(1080, 2400), (128, 256), (2400, 1080), (500, 500)]),
)
def test_a_swipe_stays_on_the_screen_goes_its_way_and_is_no_tap(
    x: float, y: float, direction: str, distance: str, size: tuple[int, int]
) -> None:
    left, top = int(x * (size[0] - 1)), int(y * (size[1] - 1))
    element = NumberedElement("e", (left, top, left + 1, top + 1), "View", "", None)
    done = on_elements(ActionCall("swipe", (1, direction, distance)), [element], size)
    assert done.touch is not None
    assert done.lift is not None
    for at in (done.touch, done.lift):
        assert 0 <= at.x <= 1
        assert 0 <= at.y <= 1
    dx, dy = done.lift.x - done.touch.x, done.lift.y - done.touch.y
    assert max(abs(dx), abs(dy)) > TAP_DISTANCE
    assert {"up": dy < 0 == dx, "down": dy > 0 == dx, "left": dx < 0 == dy, "right": dx > 0 == dy}[direction]
    assert parse(to_text(done)).kind is ActionKind.SWIPE


@pytest.mark.parametrize("size", [(1080, 2400), (128, 256), (2400, 1080), (300, 3000)])
def test_every_place_of_the_grid_is_its_own_and_on_the_screen(size: tuple[int, int]) -> None:
    grid = Grid.over(size)
    points = {grid.point(cell, place) for cell in range(1, grid.cells + 1) for place in PLACES}
    assert None not in points
    assert len(points) == grid.cells * len(PLACES)
    assert all(point is not None and 0 < point.x < 1 and 0 < point.y < 1 for point in points)
    assert grid.point(1, "center") == Point(0.5 / grid.columns, 0.5 / grid.rows)


def test_what_the_grid_has_not_is_none() -> None:
    grid = Grid.over(SIZE)
    calls = [
        ActionCall("tap", (0, "center")),
        ActionCall("tap", (grid.cells + 1, "center")),
        ActionCall("tap", (1, "middle")),
        ActionCall("swipe", (1, "top", 999, "top")),
        ActionCall("swipe", (1, "top", 1, "top")),
    ]
    for call in calls:
        with pytest.raises(UnreadError):
            on_grid(call, grid)


def test_tags_are_drawn_where_the_elements_are() -> None:
    bare, drawn = tagged(png((128, 256)), ()), tagged(png((128, 256)), [(0, 0, 64, 64)])
    before, after = (Image.open(io.BytesIO(each)).convert("RGB") for each in (bare, drawn))
    assert before.size == after.size == (LEAST_WIDTH, 2 * LEAST_WIDTH), "small screens are enlarged"
    scale = LEAST_WIDTH // 128
    changed = [
        (x, y) for x in range(0, 512, 4) for y in range(0, 1024, 4) if before.getpixel((x, y)) != after.getpixel((x, y))
    ]
    assert changed
    assert all(abs(x - 32 * scale) < 40 and abs(y - 32 * scale) < 40 for x, y in changed)
    assert size_of(tagged(png(SIZE), ())) == SIZE, "large ones are not"


def test_the_grid_is_drawn() -> None:
    grid = Grid.over((128, 256))
    drawn = Image.open(io.BytesIO(gridded(png((128, 256)), grid))).convert("RGB")
    assert drawn.getpixel((LEAST_WIDTH // grid.columns, 5)) != (90, 120, 90)


def test_a_question_that_finds_no_turn_asks_for_a_higher_rate_and_one_that_finds_no_answer_for_a_lower() -> None:
    assert "raise appagent.requests_per_minute" in unanswered(NoTurnError("its turn")).hint
    assert "lower appagent.requests_per_minute" in unanswered(NoAnswerError("429")).hint


@pytest.mark.parametrize("why", [each for each in HeldBack if each is not HeldBack.NO])
def test_of_a_touch_that_was_held_back_nothing_is_noted(why: HeldBack, monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen after it is where the phone was brought back to."""
    asked: list[object] = []
    exploring = Exploring(cast(Agent, None), lambda: None, Notebook({}, lambda notes: None))
    monkeypatch.setattr(exploring, "_effect", lambda *about: asked.append(about))
    monkeypatch.setattr(exploring._episode, "look", lambda png, without: None)
    monkeypatch.setattr(exploring._episode, "act_on", lambda task, png, screen: (Action(ActionKind.BACK), None))
    for held_back in (False, True):
        exploring._tried = cast(Any, object())
        if held_back:
            exploring.held_back(why)
        exploring.act("a task", b"")
    assert len(asked) == 1


def test_a_strip_of_a_screen_is_not_enlarged_beyond_what_any_screen_has() -> None:
    with pytest.raises(ImageError, match="1 x 2000 pixels, which is too high"):
        tagged(png((1, 2000)), ())
