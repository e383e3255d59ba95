"""The figure of an experiment, drawn by matplotlib as PNG bytes: equal numbers give equal bytes."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from distrl.evaluate.figures import INK
from distrl.experiment.figure_learned import learned
from distrl.experiment.figure_plays import by_play
from distrl.experiment.figure_style import SYNC, colour_of, dress
from distrl.experiment.measure import HOUR
from distrl.experiment.report import ArmResult, Report


def draw(report: Report) -> bytes:
    """`figure_of` as a PNG."""
    out = io.BytesIO()
    figure_of(report).savefig(out, format="png", dpi=110, metadata={"Software": None})
    return out.getvalue()


def figure_of(report: Report) -> Figure:
    """Success where arms learn, by what they play where that is more than one thing; rates over the number of phones
    where the experiment's arms differ in it; else trajectories over time, a panel for each group."""
    if any(each.arm.plays for each in report.arms):
        return by_play(report)
    if report.learns:
        return learned(report)
    sizes = {arm.phones for arm in report.experiment.arms(report.preset)}  # also where arms of one size were chosen
    return _rates(report) if len(sizes) > 1 else _curves(report)


def _curves(report: Report) -> Figure:
    groups = list(dict.fromkeys(each.arm.group for each in report.arms))
    figure = Figure(figsize=(3.9 * len(groups), 3.4), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False, sharey=True)[0]
    for axes, group in zip(panels, groups, strict=True):
        for place, each in enumerate(arm for arm in report.arms if arm.arm.group == group):
            colour = SYNC if each.arm.synchronous else colour_of(place)
            _collected(axes, each, colour)
        dress(axes, f"{group} latencies", "hours of the fleet")
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


def _rates(report: Report) -> Figure:
    figure = Figure(figsize=(6.0, 4.2), layout="constrained")
    axes = figure.subplots()
    ways = list(dict.fromkeys(map(_way, report.arms)))
    for place, way in enumerate(ways):
        arms = [each for each in report.arms if _way(each) == way]
        colour = SYNC if arms[0].arm.synchronous else colour_of(place)
        _line(axes, arms, report.experiment.compared, way, colour, "-")
        _line(axes, arms, "bound_per_hour", f"{way}: bound", colour, ":")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    phones = sorted({each.arm.phones for each in report.arms})
    axes.set_xticks(phones, [str(count) for count in phones])
    axes.xaxis.set_minor_locator(NullLocator())
    dress(axes, "trajectories by the hour", "phones")
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
