"""A table that breaks no word of its header while the terminal has room: rich alone shrinks the widest column first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table

LONGEST_WORD = 16
"""Words up to this many cells stay whole before other columns grow; a longer word, such as a path, is wrapped."""


class FittedTable(Table):
    """Of text alone. Its widths are found anew for each terminal that it is printed to."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width - 3 * len(self.columns) - 1  # beside a border and two blanks for each, and one border
        needs = [_needs(column) for column in self.columns]
        for column, width in zip(self.columns, widths(needs, room), strict=True):
            column.width = width
        yield from super().__rich_console__(console, options)


def widths(needs: Sequence[tuple[int, int, int]], room: int) -> list[int]:
    """The width of each column, 1 at least, in `room` cells for all of them.

    needs: three ascending widths of each column: for the words of its header, the words of all cells, whole lines. All
    columns get their first width before any gets more; then all get their second, or none if there is no room. Within a
    level the narrowest column grows first.
    """
    found = [1] * len(needs)
    left = room - len(needs)
    for level, wanted in enumerate(zip(*needs, strict=True)):
        if level == 1 and sum(wanted) > room:
            continue
        while left > 0 and (short := [at for at, most in enumerate(wanted) if found[at] < most]):
            found[min(short, key=found.__getitem__)] += 1
            left -= 1
    return found


def _needs(column: Column) -> tuple[int, int, int]:
    """Cells for the longest word of the header, for that of every cell, and for whole lines."""
    header, cells = str(column.header), [str(cell) for cell in column.cells]
    words = max(map(cell_len, header.split()), default=1)
    inner = max((min(cell_len(word), LONGEST_WORD) for cell in cells for word in cell.split()), default=1)
    lines = max((cell_len(line) for text in (header, *cells) for line in text.splitlines()), default=1)
    return words, max(words, inner), lines
