"""Tables in a terminal of 80 columns: no word of a header breaks, and no cell is cut off."""

from __future__ import annotations

import io

import pytest
from distrl.cli.common import row, table
from distrl.cli.fitted_table import widths
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

PATH = "/data/" + "x" * 200
TABLES = {
    "tasks check": (
        ("suite", "train", "validation", "test", "steps", "in training too", "unknown words"),
        ("googleapps", "endless", "endless", "endless", 20, 12, 30),
    ),
    "ablate": (
        ("arm", "success", "to baseline, points", "value (held out)"),
        ("no-priorities", "100.0%\n97.1% to 100.0%", "+45.1\n+38.0 to +50.0", "0.510\n0.400 to 0.620"),
    ),
    "ablate, learning": (
        ("arm", "policy loss", "V loss", "ρ", "sample share", "−log π", "effective episodes"),
        ("critic_warmup_updates=12", "-0.012", "0.345", "1.234", "0.987", "12.345", "100.1 of 128"),
    ),
    "scores": (
        ("suite", "split", "policy", "success", "95 %", "tasks", "no outcome"),
        ("googleapps", "validation", "version 12 of a long line", "45.1%", "38.0% to 50.0%", "45 of 128", 3),
    ),
    "lineage 7": (
        ("taken in at", "task id", "from the log", "outcome", "steps", "cloned at", "could be drawn at", "left out"),
        (12, "home-train-000123", "trajectories[0]@100", "success", 14, "0-11", "12-19", "too far behind"),
    ),
    "replay --dry-run": (("topic", "partition", "from", "to", "records, at most"), (PATH, 0, 0, 10_000, 10_000)),
}  # fmt: skip


def printed(name: str, width: int) -> tuple[list[str], list[str]]:
    """The lines of the table, and what each of its columns holds in all its lines together, without blanks."""
    header, cells = TABLES[name]
    shown, out = table(*header), io.StringIO()
    shown.add_row(*row(*cells))
    Console(file=out, width=width).print(shown)
    lines = out.getvalue().splitlines()
    inner = [line.replace("┃", "│").strip("│").split("│") for line in lines if line[0] in "┃│"]
    return lines, ["".join("".join(parts).split()) for parts in zip(*inner, strict=True)]


@pytest.mark.parametrize("name", TABLES)
def test_in_80_columns_the_words_of_a_header_are_whole_and_cells_are_not_cut_off(name: str) -> None:
    lines, columns = printed(name, 80)
    assert max(map(len, lines)) <= 80
    head = {word for line in lines if line[0] == "┃" for word in line.replace("┃", " ").split()}
    header, cells = TABLES[name]
    assert head == {word for title in header for word in title.split()}
    for column, title, cell in zip(columns, header, cells, strict=True):
        assert column == "".join(f"{title}{cell}".split())


def test_words_of_cells_are_whole_where_all_of_them_fit() -> None:
    for name in ("tasks check", "scores"):
        shown = "\n".join(printed(name, 80)[0])
        assert all(word in shown for cell in TABLES[name][1] for word in str(cell).split())


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("width", [20, 40, 60])
def test_a_terminal_without_the_room_folds_the_header_too(name: str, width: int) -> None:
    assert max(map(len, printed(name, width)[0])) <= width


@given(
    st.lists(st.lists(st.integers(1, 60), min_size=3, max_size=3).map(lambda each: tuple(sorted(each))), max_size=9),
    st.integers(0, 200),
)
def test_widths_fill_the_room_and_serve_the_urgent_first(needs: list[tuple[int, int, int]], room: int) -> None:
    found = widths(needs, room)
    assert all(1 <= width <= wanted[-1] for width, wanted in zip(found, needs, strict=True))
    assert sum(found) == max(len(needs), min(room, sum(wanted[-1] for wanted in needs)))
    for urgent in range(3):
        if sum(wanted[urgent] for wanted in needs) <= room:
            assert all(width >= wanted[urgent] for width, wanted in zip(found, needs, strict=True))
