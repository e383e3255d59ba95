"""The status of a run as rich panels: the live view of `distrl demo`, and what `distrl status` prints once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from distrl.telemetry.view import RunStatus
from distrl.text import printable
from distrl.types import Heartbeat

WIDTH = 100
FOUR_ACROSS = 110
"""Columns needed for four numbers side by side."""
FRAME_COLUMNS = 4
FRAME_ROWS = 2
SHORT_ROWS = 20
"""A terminal with fewer rows shows no losses, so that the processes fit under the numbers."""
EVALUATIONS = 8
GAP = 2
COLUMNS: Final = (
    "process", "version", "weights", "behind", "episodes", "reloads", "reload s", "policy ms", "adb ms", "phones",
    "each phone",
)  # fmt: skip
GIVEN_UP: Final = ("each phone", "weights", "reloads", "policy ms", "adb ms", "reload s", "behind")
"""Columns that a narrow terminal omits, in this order, as truncated columns would be useless."""


def render(
    status: RunStatus, title: str, footer: str = "", width: int = WIDTH, rows: int | None = None
) -> RenderableType:
    """The whole view, for a terminal of `width` columns; at most `rows` high if given and possible.

    `title` and `footer` are plain text.
    """
    numbers = _numbers(status, width, all_of_them=rows is None or rows >= SHORT_ROWS)
    parts: list[RenderableType] = [numbers, _processes(status, width - FRAME_COLUMNS)]
    most = EVALUATIONS
    if rows is not None:
        most = min(most, rows - FRAME_ROWS - numbers.row_count - 1 - len(status.processes) - 2)
    if status.evaluations and most > 0:
        parts.append(_evaluations(status, most))
    return Panel(Group(*parts), title=escape(title), subtitle=escape(footer) or None, border_style="cyan")


def _numbers(status: RunStatus, width: int, all_of_them: bool) -> Table:
    learner = status.learner_metrics()
    success = "–" if status.success is None else f"{status.success:.0%}"
    newest = "none yet" if status.newest is None else f"{status.newest.version} (update {status.newest.update})"
    cells = [
        ("trajectories", str(status.trajectories)),
        ("a minute", f"{status.per_minute:.0f}"),
        ("success, last 128", success),
        ("interrupted", str(status.outcomes.get("interrupted", 0))),
        ("version", newest),
        ("policy lag", f"{status.lag_mean:.1f} mean, {status.lag_max} max"),
        ("buffer", f"{learner.get('buffer', 0):.0f} transitions"),
        ("pending", f"{learner.get('pending', 0):.0f}"),
    ]
    if all_of_them:
        shown = ("clone_loss", "policy_loss", "value_loss", "entropy", "ratio", "update_seconds")
        cells.extend((name.replace("_", " "), f"{learner[name]:.3f}") for name in shown if name in learner)
    across = 4 if width >= FOUR_ACROSS else 2
    grid = Table.grid(padding=(0, GAP))
    for _ in range(across):
        grid.add_column(justify="left", no_wrap=True)
    texts = [Text.assemble((f"{name}  ", "dim"), (value, "bold")) for name, value in cells]
    for row in range(0, len(texts), across):
        grid.add_row(*texts[row : row + across])
    return grid


def _processes(status: RunStatus, width: int) -> Table:
    newest = status.newest.version if status.newest else None
    lines = [_process_cells(beat, newest, beat.process in status.silent) for beat in status.processes]
    columns = _fitting(lines, width)
    table = Table(box=None, header_style="dim", padding=(0, GAP, 0, 0), pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name in ("process", "phones", "each phone") else "right", no_wrap=True)
    for beat, cells in zip(status.processes, lines, strict=True):
        table.add_row(*(escape(cells[name]) for name in columns), style="red" if beat.process in status.silent else "")
    return table


def _fitting(lines: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """The columns that `width` has room for."""
    columns = list(COLUMNS)
    for name in GIVEN_UP:
        needed = sum(max(cell_len(column), *(cell_len(cells[column]) for cells in lines), 0) for column in columns)
        if needed + GAP * (len(columns) - 1) <= width:
            break
        columns.remove(name)
    return columns


def _process_cells(beat: Heartbeat, newest: int | None, silent: bool) -> dict[str, str]:
    """By the names of the columns, with controls escaped: names in a heartbeat are untrusted."""

    def metric(name: str, digits: int) -> str:
        return f"{beat.metrics[name]:.{digits}f}" if name in beat.metrics else ""

    states = Counter(device.state for device in beat.devices)
    cells = {
        "process": beat.process + (" (silent)" if silent else ""),
        "version": "" if beat.version is None else str(beat.version),
        "weights": (beat.version_sha256 or "")[:8],
        "behind": "" if beat.version is None or newest is None else str(newest - beat.version),
        "episodes": metric("episodes", 0) or metric("fed", 0) or metric("evaluated", 0) or metric("update", 0),
        "reloads": metric("reloads", 0),
        "reload s": metric("reload_seconds", 2),
        "policy ms": metric("policy_ms", 1),
        "adb ms": metric("adb_ms", 1),
        "phones": ", ".join(f"{count} {state}" for state, count in sorted(states.items())),
        "each phone": " ".join(f"{d.serial.rpartition(':')[2] or d.serial}:{d.state}" for d in beat.devices),
    }
    return {name: printable(cell) for name, cell in cells.items()}


def _evaluations(status: RunStatus, most: int) -> Table:
    table = Table(title="evaluations (greedy)", box=None, header_style="dim", title_justify="left")
    for name in ("version", "suite", "split", "episodes", "success"):
        table.add_column(name, justify="right")
    for version, suite, split, episodes, success in status.evaluations[-most:]:
        name = str(version) if version >= 0 else "agent"
        table.add_row(name, printable(suite), split.value, str(episodes), f"{success:.1%}")
    return table
