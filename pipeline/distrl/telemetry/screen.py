"""The snapshot of a run as rich panels: the live view of `distrl demo`, and what `distrl status` prints once."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from distrl.telemetry.view import Snapshot
from distrl.types import Heartbeat


def render(snapshot: Snapshot, title: str, footer: str = "") -> RenderableType:
    """The whole view. `title` and `footer` are plain text."""
    parts: list[RenderableType] = [_numbers(snapshot), _processes(snapshot)]
    if snapshot.evaluations:
        parts.append(_evaluations(snapshot))
    return Panel(Group(*parts), title=escape(title), subtitle=escape(footer) or None, border_style="cyan")


def _numbers(snapshot: Snapshot) -> Table:
    learner = snapshot.learner_metrics()
    grid = Table.grid(padding=(0, 3))
    for _ in range(4):
        grid.add_column(justify="left")
    success = "–" if snapshot.success is None else f"{snapshot.success:.0%}"
    newest = "none yet" if snapshot.newest is None else f"{snapshot.newest.version} (update {snapshot.newest.update})"
    cells = [
        ("trajectories", str(snapshot.trajectories)),
        ("a minute", f"{snapshot.per_minute:.0f}"),
        ("success, last 128", success),
        ("interrupted", str(snapshot.outcomes.get("interrupted", 0))),
        ("newest version", newest),
        ("policy lag", f"{snapshot.lag_mean:.1f} mean, {snapshot.lag_max} max"),
        ("buffer", f"{learner.get('buffer', 0):.0f} transitions"),
        ("pending", f"{learner.get('pending', 0):.0f}"),
    ]
    shown = ("clone_loss", "policy_loss", "value_loss", "entropy", "ratio", "update_seconds")
    cells.extend((name.replace("_", " "), f"{learner[name]:.3f}") for name in shown if name in learner)
    texts = [Text.assemble((f"{name}  ", "dim"), (value, "bold")) for name, value in cells]
    for row in range(0, len(texts), 4):
        grid.add_row(*texts[row : row + 4])
    return grid


def _processes(snapshot: Snapshot) -> Table:
    table = Table(expand=True, box=None, header_style="dim")
    for name in ("process", "version", "behind", "episodes", "reloads", "reload s", "policy ms", "adb ms", "devices"):
        table.add_column(name, justify="left" if name in ("process", "devices") else "right")
    newest = snapshot.newest.version if snapshot.newest else None
    for beat in snapshot.processes:
        style = "red" if beat.process in snapshot.silent else ""
        table.add_row(*_process_cells(beat, newest, silent=bool(style)), style=style)
    return table


def _process_cells(beat: Heartbeat, newest: int | None, silent: bool) -> list[str]:
    def metric(name: str, digits: int) -> str:
        return f"{beat.metrics[name]:.{digits}f}" if name in beat.metrics else ""

    name = escape(beat.process) + (" (silent)" if silent else "")
    version = "" if beat.version is None else f"{beat.version} {(beat.version_sha256 or '')[:8]}"
    behind = "" if beat.version is None or newest is None else str(newest - beat.version)
    devices = " ".join(f"{escape(d.serial.rpartition(':')[2] or d.serial)}:{escape(d.state)}" for d in beat.devices)
    episodes = metric("episodes", 0) or metric("fed", 0) or metric("evaluated", 0) or metric("update", 0)
    return [
        name,
        version,
        behind,
        episodes,
        metric("reloads", 0),
        metric("reload_seconds", 2),
        metric("policy_ms", 1),
        metric("adb_ms", 1),
        devices,
    ]


def _evaluations(snapshot: Snapshot) -> Table:
    table = Table(title="evaluations (greedy)", box=None, header_style="dim", title_justify="left")
    for name in ("version", "split", "episodes", "success"):
        table.add_column(name, justify="right")
    for version, split, episodes, success in snapshot.evaluations[-8:]:
        table.add_row(str(version), split.value, str(episodes), f"{success:.1%}")
    return table
