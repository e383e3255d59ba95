"""The report's figures, drawn by matplotlib as SVG text, from numbers of curves.py."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from distrl.evaluate.curves import CurvePoint, SuccessRate
from distrl.evaluate.failures import Mode, Modes
from distrl.text import printable

INK, MUTED, GRID = "#2b3440", "#7b8794", "#e4e8ec"
BEFORE, AFTER, LINE = "#c2cbd4", "#2f7f86", "#2f7f86"
DRAWN_ROWS = 100
"""Most rows of a figure of failures: one for each of hundreds of versions is slow to draw and too high to read."""
WIDE, NARROW = (6.4, 3.0), (4.4, 3.0)


def curve(points: Sequence[CurvePoint], over: Callable[[CurvePoint], float], label: str) -> str:
    """Validation success against `over` of each point of which an outcome is known, with 95 % intervals."""
    known = [point for point in points if point.score.episodes]

    def draw(axes: Axes) -> None:
        xs = [over(point) for point in known]
        axes.fill_between(
            xs,
            [point.score.interval[0] for point in known],
            [point.score.interval[1] for point in known],
            color=LINE,
            alpha=0.14,
            linewidth=0,
        )
        axes.plot(xs, [point.score.success for point in known], color=LINE, marker="o", markersize=4, linewidth=1.8)
        _share_axis(axes, "success on validation tasks")
        axes.set_xlabel(label)

    return _svg(draw, NARROW)


def training(points: Sequence[tuple[int, float]], window: int) -> str:
    """Success of the sampling policy on training tasks, as a moving mean."""

    def draw(axes: Axes) -> None:
        axes.plot([x for x, _ in points], [y for _, y in points], color=LINE, linewidth=1.6)
        _share_axis(axes, f"success, last {window}")
        axes.set_xlabel("training trajectories")

    return _svg(draw, WIDE)


def families(before: Mapping[str, SuccessRate], after: Mapping[str, SuccessRate]) -> str:
    """Success by family, before and after, as pairs of bars with 95 % intervals."""
    names = sorted({*before, *after})

    def draw(axes: Axes) -> None:
        for offset, scores, colour, label in ((0.2, before, BEFORE, "before"), (-0.2, after, AFTER, "after")):
            known = [scores.get(name, SuccessRate(0, 0)) for name in names]
            low = [item.success - item.interval[0] if item.episodes else 0.0 for item in known]
            high = [item.interval[1] - item.success if item.episodes else 0.0 for item in known]
            axes.barh(
                [place + offset for place in range(len(names))],
                [item.success for item in known],
                0.36,
                xerr=[low, high],
                color=colour,
                label=label,
                error_kw={"ecolor": MUTED, "elinewidth": 0.8},
            )
        axes.set_yticks(range(len(names)), [_plain(name) for name in names])
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1))
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, fontsize=8, labelcolor=INK)

    return _svg(draw, (WIDE[0], 0.9 + 0.42 * max(1, len(names))))


def lags(values: Sequence[int]) -> str:
    """How many trajectories were how many versions behind when they were first learned."""
    counts = Counter(values)

    def draw(axes: Axes) -> None:
        axes.bar(list(counts), list(counts.values()), 0.8, color=AFTER)
        axes.set_xlim(min(0, *counts) - 0.6, max(4, *counts) + 0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("versions behind when learned")
        axes.set_ylabel("trajectories")

    return _svg(draw, NARROW)


def reloads(seconds: Sequence[float]) -> str:
    """The share of reloads that took at most so long."""

    def draw(axes: Axes) -> None:
        ordered = sorted(seconds)
        axes.step(
            [0.0, *ordered],
            [place / max(1, len(ordered)) for place in range(len(ordered) + 1)],
            where="post",
            color=LINE,
            linewidth=1.8,
        )
        _share_axis(axes, "share of reloads")
        axes.set_xlabel("seconds from publication to first action")

    return _svg(draw, NARROW)


def failure_modes(rows: Sequence[Modes]) -> str:
    """The share of attempts that failed in each way, stacked, a bar for each suite and range of versions; of more than
    DRAWN_ROWS those of agents and of the newest versions, which the title then says."""
    everything, rows = len(rows), _newest(rows)

    def draw(axes: Axes) -> None:
        names = [_plain(f"{row.suite} {row.who}" if row.agent else f"{row.suite} v{row.who}") for row in rows]
        below = [0.0] * len(rows)
        for mode, colour in zip(Mode, (AFTER, BEFORE, MUTED), strict=True):
            shares = [row.share(mode) for row in rows]
            axes.barh(range(len(rows)), shares, 0.7, left=below, color=colour, label=mode.value)
            below = [low + share for low, share in zip(below, shares, strict=True)]
        axes.set_yticks(range(len(rows)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(PercentFormatter(1))
        axes.set_xlabel("share of attempts that failed")
        if everything > len(rows):
            axes.set_title(f"the newest {len(rows)} of {everything} rows", fontsize=8.5, color=INK, loc="left")
        axes.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=3, fontsize=8, labelcolor=INK)

    return _svg(draw, (WIDE[0], 1.1 + 0.3 * max(1, len(rows))))


def _newest(rows: Sequence[Modes]) -> list[Modes]:
    """Those that are drawn, in the order given."""
    newest = sorted(range(len(rows)), key=lambda at: (rows[at].agent != "", rows[at].last))[-DRAWN_ROWS:]
    return [rows[at] for at in sorted(newest)]


def _share_axis(axes: Axes, label: str) -> None:
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylabel(label)


def _plain(text: str) -> str:
    """Text from a record as matplotlib's plain text: a '$' would start a formula, and a control breaks an SVG."""
    return printable(text[:40]).replace("$", r"\$")


def _svg(draw: Callable[[Axes], None], size: tuple[float, float]) -> str:
    """An <svg> element. Text stays text, and ids come from a fixed salt, so that equal numbers give equal bytes."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)
    draw(axes)
    for label in (axes.xaxis.label, axes.yaxis.label, *axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_color(INK)
        label.set_fontsize(8.5)
    axes.tick_params(color=GRID)
    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "distrl", "font.family": "sans-serif"}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    return text[text.index("<svg") :]
