"""The figure of an experiment, drawn by matplotlib as PNG bytes: equal numbers give equal bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from distrl.evaluate.figures import GRID, INK, MUTED
from distrl.experiment.measure import HOUR
from distrl.experiment.report import ArmResult, Report

COLOURS: Final = ("#2f7f86", "#d08a2e", "#7b5ea7", "#4a78b5", "#b8544f", "#6b8f3c")
SYNC: Final = INK


def draw(report: Report) -> bytes:
    """Success where arms learn; rates over the number of phones where they differ in it; else trajectories over time, a
    panel for each group."""
    if report.arms[0].arm.learns:
        figure = _learning(report)
    else:
        figure = _rates(report) if len({each.arm.phones for each in report.arms}) > 1 else _curves(report)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, metadata={"Software": None})
    return out.getvalue()


def _curves(report: Report) -> Figure:
    groups = list(dict.fromkeys(each.arm.group for each in report.arms))
    figure = Figure(figsize=(3.9 * len(groups), 3.4), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
    for axes, group in zip(panels, groups, strict=True):
        for place, each in enumerate(arm for arm in report.arms if arm.arm.group == group):
            colour = SYNC if each.arm.synchronous else COLOURS[place % len(COLOURS)]
            _collected(axes, each, colour)
        _dress(axes, f"{group} latencies", "hours of the fleet")
    panels[0].set_ylabel("trajectories", fontsize=8, color=INK)
    return figure


def _collected(axes: Axes, each: ArmResult, colour: str) -> None:
    """Every seed thin, their mean on top."""
    hours = [at / HOUR for at, _ in each.results[0]["collected"]]
    seeds = [[count for _, count in result["collected"]] for result in each.results]
    for counts in seeds:
        axes.plot(hours, counts, color=colour, linewidth=0.6, alpha=0.4)
    mean = [sum(column) / len(column) for column in zip(*seeds, strict=True)]
    axes.plot(hours, mean, color=colour, linewidth=1.8, label=_way(each))


def _learning(report: Report) -> Figure:
    """Success over time and over trajectories: every seed thin, their mean on top."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for place, each in enumerate(report.arms):
        colour = SYNC if each.arm.synchronous else COLOURS[place % len(COLOURS)]
        for axes, column, unit in zip(panels, (0, 1), (HOUR, 1), strict=True):
            curves = [[(point[column] / unit, point[2]) for point in result["curve"]] for result in each.results]
            for points in curves:
                axes.plot([x for x, _ in points], [y for _, y in points], color=colour, linewidth=0.6, alpha=0.4)
            mean = [
                [sum(part) / len(part) for part in zip(*points, strict=True)] for points in zip(*curves, strict=True)
            ]
            axes.plot(
                [x for x, _ in mean], [y for _, y in mean], color=colour, linewidth=1.8, marker="o", markersize=3,
                label=each.arm.name,
            )  # fmt: skip
    for axes, label in zip(panels, ("hours of the fleet", "trajectories learned from"), strict=True):
        _dress(axes, "success on tasks of validation", label)
    return figure


def _rates(report: Report) -> Figure:
    figure = Figure(figsize=(6.0, 4.2), layout="constrained")
    axes = figure.subplots()
    ways = list(dict.fromkeys(map(_way, report.arms)))
    for place, way in enumerate(ways):
        arms = [each for each in report.arms if _way(each) == way]
        colour = SYNC if arms[0].arm.synchronous else COLOURS[place]
        _line(axes, arms, report.experiment.compared, way, colour, "-")
        _line(axes, arms, "bound_per_hour", f"{way}: bound", colour, ":")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    phones = sorted({each.arm.phones for each in report.arms})
    axes.set_xticks(phones, [str(count) for count in phones])
    axes.xaxis.set_minor_locator(NullLocator())
    _dress(axes, "trajectories by the hour", "phones")
    return figure


def _line(axes: Axes, arms: Sequence[ArmResult], figure: str, label: str, colour: str, style: str) -> None:
    points = [(each.arm.phones, found.mean) for each in arms if (found := each.summary(figure)) is not None]
    marker = "o" if style == "-" else None
    axes.plot(
        [x for x, _ in points], [y for _, y in points],
        color=colour, linestyle=style, marker=marker, markersize=4, label=label,
    )  # fmt: skip


def _way(each: ArmResult) -> str:
    return each.arm.name.removeprefix(f"{each.arm.group}/")


def _dress(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, fontsize=9, color=INK, loc="left")
    axes.set_xlabel(label, fontsize=8, color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=MUTED, labelsize=8)
    axes.legend(fontsize=8, frameon=False, labelcolor=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)
