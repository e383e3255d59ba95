import itertools
from dataclasses import replace

import pytest
from PIL import Image
from simphone.apps import REGISTRY
from simphone.gallery import GAP, contact_sheet, tour, walk
from simphone.generations import NEWEST


def test_images_stand_in_rows_each_as_large_as_asked() -> None:
    images = [Image.new("RGB", (4, 8), (value, 0, 0)) for value in (10, 20, 30)]
    sheet = contact_sheet(images, columns=2, scale=2)
    assert sheet.size == (2 * (8 + GAP) + GAP, 2 * (16 + GAP) + GAP)
    assert [sheet.getpixel(at) for at in ((GAP, GAP), (8 + 2 * GAP, GAP), (GAP, 16 + 2 * GAP))] == [
        (10, 0, 0),
        (20, 0, 0),
        (30, 0, 0),
    ]


def test_a_sheet_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no images"):
        contact_sheet([], columns=3)


@pytest.mark.parametrize("generation", range(NEWEST + 1))
def test_a_tour_comes_by_every_app_and_shows_no_screen_twice(generation: int) -> None:
    shown = [image.tobytes() for image in tour(generation)]
    assert len(set(shown)) == len(shown)
    assert {state.app for state in walk(generation)} >= set(REGISTRY)


def test_every_step_of_the_tour_does_something() -> None:
    states = [replace(state, clock=0) for state in walk()]
    assert all(one != other for one, other in itertools.pairwise(states)), "a step that does nothing is out of date"
