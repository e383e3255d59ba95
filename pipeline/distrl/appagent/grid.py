"""A grid over the screen, for places without elements: numbered cells, nine places in each (AppAgent)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from distrl.types import Point

ACROSS: Final = 8
"""Cells along the shorter side; AppAgent's are 120 to 180 px of a screen about 1,080 px wide."""
MOST_ALONG: Final = 32
PLACES: Final = {
    "top-left": (0.25, 0.25), "top": (0.5, 0.25), "top-right": (0.75, 0.25),
    "left": (0.25, 0.5), "center": (0.5, 0.5), "right": (0.75, 0.5),
    "bottom-left": (0.25, 0.75), "bottom": (0.5, 0.75), "bottom-right": (0.75, 0.75),
}  # fmt: skip
"""Shares of a cell's width and height."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells are numbered from 1, row by row."""

    columns: int
    rows: int

    @classmethod
    def over(cls, size: tuple[int, int]) -> Grid:
        """Roughly square cells over a screen of width and height px."""
        side = min(size) / ACROSS
        columns, rows = (max(1, min(MOST_ALONG, round(length / side))) for length in size)
        return cls(columns, rows)

    @property
    def cells(self) -> int:
        return self.columns * self.rows

    def point(self, cell: int, place: str) -> Point | None:
        """The point of a `place` in a cell; None for an unknown cell or place."""
        if not 1 <= cell <= self.cells or place not in PLACES:
            return None
        row, column = divmod(cell - 1, self.columns)
        x, y = PLACES[place]
        return Point((column + x) / self.columns, (row + y) / self.rows)
