"""What a page of a report shows, whichever command wrote it: facts, tables and curves. Plain values; all texts are
untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Interval = tuple[float | None, float | None, float | None]
"""(value, low, high) of a 95 % interval."""
Cell = str | int | float | Interval | None
Points = Sequence[tuple[float, float | None]]
"""(x, y), x ascending."""

MOST_POINTS: Final = 500
"""Most points of a line; a plot has no room for more."""
MOST_LINES: Final = 100
"""Most lines of a curve, the first ones: a sweep has hundreds of arms, and nobody tells so many lines apart."""


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Curve:
    """lines: each with a value for every x of `at`, null where it has none."""

    name: str
    x: str
    at: Sequence[float]
    lines: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ReportForm:
    kind: str
    """ablation or experiment."""
    title: str
    about: str
    complete: bool
    arms: int
    notes: Sequence[str]
    facts: Sequence[tuple[str, str]]
    tables: Sequence[Table]
    curves: Sequence[Curve]
    settings: Mapping[str, Any]
    """What was computed under, by name; of an experiment, what each arm sets and assumes. Values may be msgspec.Raw:
    they are shown as they are, however deep they are."""


def curve(name: str, x: str, lines: Sequence[tuple[str, Points]]) -> Curve | None:
    """None where there is no point. Lines with points of their own share the union of their x."""
    drawn = [(arm, _thinned(points)) for arm, points in lines[:MOST_LINES]]
    at = sorted({x for _, points in drawn for x, _ in points})
    if not at:
        return None
    found = [(arm, dict(points)) for arm, points in drawn]
    return Curve(name, x, at, [{"name": arm, "values": [points.get(x) for x in at]} for arm, points in found])


def _thinned(points: Points) -> Points:
    """At most MOST_POINTS of them, evenly, with the last one."""
    step = -(-len(points) // MOST_POINTS) or 1
    return points[::-1][::step][::-1]
