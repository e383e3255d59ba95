from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from distrl.evaluate import strips
from distrl.images import ImageError
from distrl.judge.marks import TOUCH
from distrl.types import Action, ActionKind, HeldBack, Outcome, Point
from PIL import Image

from .world import PNGS, screen, task, trajectory


def picture(action: Action | None) -> Image.Image:
    return Image.open(io.BytesIO(strips.draw(PNGS[screen(90).sha256], action))).convert("RGB")


def marked(image: Image.Image) -> list[tuple[int, int]]:
    return [(x, y) for x in range(image.width) for y in range(image.height) if image.getpixel((x, y)) == TOUCH]


def test_a_tap_is_drawn_where_it_landed() -> None:
    image = picture(Action(ActionKind.TAP, Point(0.25, 0.75)))
    spots = marked(image)
    middle = (sum(x for x, _ in spots) / len(spots), sum(y for _, y in spots) / len(spots))
    assert middle == pytest.approx((0.25 * image.width, 0.75 * image.height), abs=1)


def test_a_swipe_is_drawn_from_touch_to_lift() -> None:
    image = picture(Action(ActionKind.SWIPE, Point(0.5, 0.8), Point(0.5, 0.2)))
    rows = {y for _, y in marked(image)}
    assert min(rows) < 0.2 * image.height
    assert max(rows) >= int(0.8 * image.height) - 1


def test_other_actions_leave_the_screen_as_it_was() -> None:
    assert marked(picture(Action(ActionKind.BACK))) == marked(picture(None)) == []


def test_the_task_of_the_strip_failed_before_and_was_solved_after() -> None:
    names = "abc"
    before = [
        trajectory(task(name), outcome)
        for name, outcome in zip(names, (Outcome.FAILURE, Outcome.SUCCESS, Outcome.FAILURE), strict=True)
    ]
    after = [trajectory(task(name), versions=(1,) * length) for name, length in zip(names, (1, 9, 3), strict=True)]
    assert strips.pick(before, after) == (before[2], after[2])
    assert strips.pick(before, []) is None


def test_a_strip_says_what_was_held_back_or_judged_invalid() -> None:
    played = trajectory(task("a"), versions=(1,) * 4)
    changes: list[dict[str, Any]] = [
        {},
        {"held_back": HeldBack.UNSENT},
        {"valid": False, "held_back": HeldBack.UNDONE},
        {"held_back": HeldBack.REFUSED},
    ]
    steps = tuple(replace(step, **change) for step, change in zip(played.steps, changes, strict=True))
    captions = [frame.caption for frame in strips.strip("t", replace(played, steps=steps), lambda ref: b"").frames]
    plain = strips.caption(steps[0].action)
    undone = f"{plain} (left the allowed apps, undone) (judged invalid)"
    assert captions == [
        plain,
        f"{plain} (not sent)",
        undone,
        f"{plain} (refused by the phone)",
        played.outcome.value,
    ]


def test_a_picture_of_few_bytes_that_would_be_drawn_thousands_of_pixels_high_is_no_screen() -> None:
    def png(width: int, height: int) -> bytes:
        out = io.BytesIO()
        Image.new("1", (width, height)).save(out, "PNG")
        return out.getvalue()

    assert Image.open(io.BytesIO(strips.draw(png(10, 200), None))).size == (150, 3_000)
    with pytest.raises(ImageError, match="has 10 x 201 pixels, which is no screen"):
        strips.draw(png(10, 201), None)


def test_an_image_that_claims_too_many_pixels_is_not_unpacked() -> None:
    out = io.BytesIO()
    Image.new("1", (8_000, 8_000)).save(out, "PNG")
    with pytest.raises(ValueError, match="too many"):
        strips.draw(out.getvalue(), None)
