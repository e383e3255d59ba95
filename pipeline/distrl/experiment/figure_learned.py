"""The figure of arms that learn: success over time and over trajectories, what held-out tasks came to, and how they
failed where the tables show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from distrl.evaluate.figures import INK
from distrl.experiment.figure_style import SYNC, colour_of, dress, style_of
from distrl.experiment.measure import HOUR
from distrl.experiment.plan import MODES
from distrl.experiment.report import ArmResult, Report
from distrl.types import Split

TASKS = {Split.VALIDATION: "tasks of validation", Split.TEST: "held-out tasks"}
LOWEST: Final = 3.0
"""Least height of the panels in inches, however few arms there are. The sizes below are in inches, too."""
AROUND: Final = 1.2
"""Room above and below the rows of a panel."""
ROW: Final = 0.24
"""Height of an arm's row in a panel; its name fits."""
LEGEND_ROW: Final = 0.2
LEGEND_COLUMN: Final = 2.4


def learned(report: Report) -> Figure:
    """The figure: a panel for each of these, and a legend of the arms below."""
    modes, arms = set(MODES) <= set(report.experiment.shown), len(report.arms)
    width = 16.0 if modes else 12.0
    columns = min(arms, int(width / LEGEND_COLUMN))
    height = max(LOWEST, AROUND + ROW * arms) + LEGEND_ROW * (1 + math.ceil(arms / columns))
    figure = Figure(figsize=(width, height), layout="constrained")
    over_time, over_trajectories, held_out, *failed = figure.subplots(1, 4 if modes else 3)
    title = f"success on {TASKS[report.arms[0].arm.curve]}"
    for axes, column, unit, label in (
        (over_time, 0, HOUR, "hours of the fleet"),
        (over_trajectories, 1, 1.0, "trajectories learned from"),
    ):
        for place, each in enumerate(report.arms):
            _curve(axes, each, column, unit, place)
        dress(axes, title, label, legend=False)
    lines, names = over_time.get_legend_handles_labels()
    figure.legend(
        lines, names, loc="outside lower center", ncols=columns, fontsize=8, frameon=False, labelcolor=INK,
        handlelength=3.0,
    )  # fmt: skip
    _held_out(held_out, report.arms)
    for axes in failed:
        _modes(axes, report.arms)
    return figure


def _curve(axes: Axes, each: ArmResult, column: int, unit: float, place: int) -> None:
    """Every seed thin, their mean on top. column: of a point of the curve, what success is over."""
    colour, style = _colour(each, place), style_of(place)
    curves = [[(point[column] / unit, point[2]) for point in result["curve"]] for result in each.results]
    for points in curves:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        axes.plot(xs, ys, color=colour, linestyle=style, linewidth=0.6, alpha=0.4)
    mean = [[sum(part) / len(part) for part in zip(*points, strict=True)] for points in zip(*curves, strict=True)]
    axes.plot(
        [x for x, _ in mean], [y for _, y in mean], color=colour, linestyle=style, linewidth=1.8, marker="o",
        markersize=3, label=each.arm.name,
    )  # fmt: skip


def _held_out(axes: Axes, arms: Sequence[ArmResult]) -> None:
    """A row for each arm: every seed as a point, their mean with its interval; before learning as a line."""
    for place, each in enumerate(arms):
        found, colour = each.summary("success_last"), _colour(each, place)
        if found is None:
            continue
        if found.interval is not None:
            axes.plot(found.interval, [place, place], color=colour, linewidth=2.0)
        axes.plot([found.mean], [place], color=colour, marker="o", markersize=6)
        seeds = each.values("success_last")
        axes.plot(seeds, [place] * len(seeds), color=colour, marker="|", linestyle="none", markersize=9)
        if (first := each.summary("success_first")) is not None:
            axes.plot([first.mean] * 2, [place - 0.3, place + 0.3], color=colour, linewidth=1.0, linestyle=":")
    _rows(axes, arms)
    dress(axes, "held-out success, last version; dotted: first", "", legend=False)


def _modes(axes: Axes, arms: Sequence[ArmResult]) -> None:
    """A bar for each arm, of the share of each failure mode among all held-out episodes."""
    begin = [0.0] * len(arms)
    for number, mode in enumerate(MODES):
        shares = [0.0 if (found := each.summary(mode)) is None else found.mean for each in arms]
        axes.barh(range(len(arms)), shares, 0.6, begin, color=colour_of(number), label=mode)
        begin = [a + b for a, b in zip(begin, shares, strict=True)]
    _rows(axes, arms)
    dress(axes, "how held-out tasks failed, as shares of all", "", legend=False)
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=3)


def _rows(axes: Axes, arms: Sequence[ArmResult]) -> None:
    axes.set_yticks(range(len(arms)), [each.arm.name for each in arms])
    axes.invert_yaxis()


def _colour(each: ArmResult, place: int) -> str:
    return SYNC if each.arm.synchronous else colour_of(place)
