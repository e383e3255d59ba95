"""The figure of arms that play more than one thing: a panel for each group, a row for each arm, a mark for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from distrl.evaluate.figures import INK
from distrl.experiment.figure_style import colour_of, dress
from distrl.experiment.page import column_of
from distrl.experiment.report import ArmResult, Report

ROW: Final = 0.32
"""Height of an arm's row, in inches."""


def by_play(report: Report) -> Figure:
    """Success of the last version: held-out, and whatever else it has played."""
    groups = list(dict.fromkeys(each.arm.group for each in report.arms))
    figures = ["success_last", *(play.name for play in report.arms[0].arm.plays)]
    height = 1.6 + ROW * len(report.arms) / len(groups) * max(1.0, len(figures) / 3)
    figure = Figure(figsize=(7.0 * len(groups), height), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False, sharex=True)[0]
    for axes, group in zip(panels, groups, strict=True):
        _panel(axes, [each for each in report.arms if each.arm.group == group], figures)
        dress(axes, f"trained on {group}: success of the last version", "", legend=False)
    panels[0].legend(fontsize=8, frameon=False, labelcolor=INK, loc="upper left", bbox_to_anchor=(0, -0.06), ncols=5)
    return figure


def _panel(axes: Axes, arms: Sequence[ArmResult], figures: Sequence[str]) -> None:
    """The mean over the seeds, its interval, and every seed."""
    for number, name in enumerate(figures):
        offset = (number - (len(figures) - 1) / 2) * 0.7 / len(figures)
        colour, label = colour_of(number), column_of(name)[0]
        for place, each in enumerate(arms):
            found = each.summary(name)
            if found is None:
                continue
            y = place + offset
            if found.interval is not None:
                axes.plot(found.interval, [y, y], color=colour, linewidth=1.5)
            axes.plot(each.values(name), [y] * len(each.values(name)), color=colour, marker="|", linestyle="none")
            axes.plot([found.mean], [y], color=colour, marker="o", markersize=4, linestyle="none", label=label)
            label = "_"  # once in the legend
    axes.set_yticks(range(len(arms)), [each.arm.name.removeprefix(f"{each.arm.group}/") for each in arms])
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.0)
