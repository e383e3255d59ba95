"""Points as the numbers of a dialect, and back.

On a grid of n columns x in [0, 1] is written as round(n x), the nearest number, of two the even one, and v in [0, n] is
read as v / n. So a number is read and written as itself, and a point moves by half a column at most. Rows likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from distrl.errors import PolicyError
from distrl.types import Point, ScreenSize

THOUSAND: Final = 1000


@dataclass(frozen=True, slots=True)
class Grid:
    """Numbers from (0, 0), the upper left corner of the screen, to (columns, rows), the lower right one."""

    columns: int
    rows: int

    def numbers(self, point: Point | None) -> tuple[int, int]:
        """The nearest numbers of `point`. Raises PolicyError for none, or one that is not on the screen."""
        if point is None or not (0 <= point.x <= 1 and 0 <= point.y <= 1):
            raise PolicyError("action", f"{point} is no point of the screen", "x and y are from 0 to 1")
        return round(point.x * self.columns), round(point.y * self.rows)

    def point(self, numbers: object) -> Point:
        """The point of two numbers, or the middle of a box of four: left, top, right, bottom.

        Raises ValueError for anything else, and for a place that is not on the screen: it is not moved onto it.
        """
        match numbers:
            case (x, y):
                return Point(self._across(x), self._down(y))
            case (left, top, right, bottom):
                x0, y0, x1, y1 = self._across(left), self._down(top), self._across(right), self._down(bottom)
                if x0 <= x1 and y0 <= y1:
                    return Point((x0 + x1) / 2, (y0 + y1) / 2)
        raise ValueError("neither a point nor a box")

    def _across(self, value: object) -> float:
        return _share(value, self.columns)

    def _down(self, value: object) -> float:
        return _share(value, self.rows)


GridOf = Callable[[ScreenSize], Grid]


def pixels(size: ScreenSize) -> Grid:
    """Absolute coordinates: pixels of the image that the model sees."""
    return Grid(size.width, size.height)


def thousandths(_: ScreenSize) -> Grid:
    """Relative coordinates: thousandths of the screen, whatever its size."""
    return Grid(THOUSAND, THOUSAND)


def _share(value: object, whole: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= whole:  # NaN is refused, too
        raise ValueError("a coordinate off the screen")
    return value / whole
