from __future__ import annotations

import pytest
from distrl.errors import PolicyError
from distrl.policy.dialects.grid import Grid, pixels, thousandths
from distrl.types import Point, ScreenSize
from hypothesis import given
from hypothesis import strategies as st

sides = st.integers(1, 100_000)


@given(sides, sides, st.data())
def test_each_number_is_written_as_it_was_read(columns: int, rows: int, data: st.DataObject) -> None:
    numbers = data.draw(st.tuples(st.integers(0, columns), st.integers(0, rows)))
    grid = Grid(columns, rows)
    assert grid.numbers(grid.point(numbers)) == numbers


def test_the_nearest_number_is_written_and_of_two_the_even_one() -> None:
    grid = Grid(10, 10)
    assert grid.numbers(Point(0.25, 0.75)) == (2, 8)
    assert grid.numbers(Point(0.26, 0.74)) == (3, 7)
    assert grid.numbers(Point(0.049, 0.951)) == (0, 10)


def test_a_box_is_its_middle() -> None:
    assert Grid(100, 200).point([10, 20, 30, 60]) == Point(0.2, 0.2)
    assert Grid(100, 200).point((10, 20, 10, 20)) == Point(0.1, 0.1)


@pytest.mark.parametrize(
    "numbers",
    [
        *((), (1,), (1, 2, 3), (1, 2, 3, 4, 5), None, "12", {1: 2, 3: 4}, ((1, 2), (3, 4))),
        *((101, 1), (1, -1), (float("nan"), 1), (float("inf"), 1), (True, 1), ("1", 1)),
        *((30, 20, 10, 60), (10, 60, 30, 20), (10, 20, 101, 60)),
    ],
)
def test_anything_else_is_no_point(numbers: object) -> None:
    with pytest.raises(ValueError, match=r"off the screen|neither a point nor a box"):
        Grid(100, 100).point(numbers)


@pytest.mark.parametrize("point", [None, Point(1.01, 0), Point(0, -0.01), Point(float("nan"), 0)])
def test_a_point_off_the_screen_has_no_numbers(point: Point | None) -> None:
    with pytest.raises(PolicyError, match="no point of the screen"):
        Grid(100, 100).numbers(point)


def test_absolute_and_relative() -> None:
    size = ScreenSize(1080, 2400)
    assert pixels(size) == Grid(1080, 2400)
    assert thousandths(size) == Grid(1000, 1000)
