"""The result of an experiment as one self-contained HTML page."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Final

from distrl.evaluate.markup import document, png_uri
from distrl.evaluate.page import STYLE
from distrl.experiment.plan import MODES
from distrl.experiment.reached import SHARE
from distrl.experiment.reliable import Estimate
from distrl.experiment.report import ArmResult, Comparison, Report
from distrl.experiment.statistics import Difference, Summary

COLUMNS: Final = {
    "success_first": ("held-out, first", 3),
    "success_last": ("held-out, last", 3),
    "mean_success": ("mean over time", 3),
    "trajectories": ("trajectories", 0),
    "per_hour": ("an hour", 1),
    "bound_per_hour": ("bound", 1),
    "share_of_bound": ("of the bound", 3),
    "own_time_share": ("phones at work", 3),
    "mean_lag": ("mean lag", 2),
    "max_lag": ("largest lag", 1),
    "episode_own_s": ("episode, s", 0),
    **{mode: (mode, 3) for mode in MODES},
}
"""Figure -> its column's head and its decimals; another is a share, under its own name. Intervals of all are in
report.json."""
OF_FEW_SEEDS: Final = (
    "of three seeds it is their range, which holds the true mean in three of four cases. What is better or worse is "
    "judged by wider ones."
)
"""What a reader must know of a percentile interval of a bootstrap over seeds."""
LEARNED: Final = (f"hours to {SHARE * 100:.0f} % of the best", "interquartile mean", "tasks that flip")
"""Heads of the columns that only arms which learn have."""


def column_of(figure: str) -> tuple[str, int]:
    return COLUMNS.get(figure, (figure, 3))


def until_reached(at_s: float | None, low_s: float | None, high_s: float | None) -> str:
    """Until something was reached, with the interval; None where it was not, and of both bounds where there is none."""
    at, low, high = ("not reached" if each is None else f"{each / 3600:.2f}" for each in (at_s, low_s, high_s))
    return at if low_s is None else f"{at} ({low} to {high})"


def html_page(report: Report, png: bytes) -> str:
    title = escape(report.experiment.title)
    hours = report.experiment.until[report.preset] / 3600
    seeds = "seed" if len(report.seeds) == 1 else "seeds"
    parts = [
        f"<header><h1>{title}</h1><p>{escape(report.experiment.about)}</p>"
        f"<p>{hours:.2f} virtual hours, {seeds} {', '.join(map(str, report.seeds))}: "
        f"<code>{escape(report.command)}</code></p></header>",
        f'<section><figure><img alt="{title}" style="width:100%" src="{png_uri(png)}"></figure></section>',
        *_compared_section(report),
        f"<section><h2>Every arm</h2>{_table(*arm_table(report))}"
        f"<p>Means over the seeds, with the 95 % interval of their bootstrap: {escape(OF_FEW_SEEDS)} "
        f"{escape(_held_out_note(report))}</p>"
        "</section>",
        f"<section><h2>What was assumed</h2>{_costs(report)}</section>",
    ]
    return document(title, STYLE, "\n".join(parts))


def arm_table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Head and rows, as text."""
    shown = report.experiment.shown
    head = ["arm", *(column_of(name)[0] for name in shown)]
    if report.learns:
        head += LEARNED
    return head, [_row(report, each, shown) for each in report.arms]


def comparison_table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Without rows where no arm is compared with another."""
    name, decimals = column_of(report.experiment.compared)
    head = ["arm", "against", f"{name}: ratio", "difference"]
    head += ["over tasks", "probability of improvement", "which is"] if report.learns else ["which is"]
    return head, [_compared(each, decimals, learns=report.learns) for each in report.comparisons]


def _compared_section(report: Report) -> list[str]:
    head, rows = comparison_table(report)
    title = escape(f"Against {report.experiment.against}")
    return [f"<section><h2>{title}</h2>{_table(head, rows)}</section>"] if rows else []


def _held_out_note(report: Report) -> str:
    if not report.learns:
        return ""
    return (
        "The best is the highest success with which the curve of an arm of its group ends, as the mean of the seeds; "
        "an arm has reached a share of it where its own mean is there for the first time. The interquartile mean is "
        "that of held-out success by family and seed, with its stratified bootstrap. A task flips where one seed does "
        "it and another does not: the mean over pairs of seeds. An arm is better or worse than another where the "
        "intervals of their difference over the seeds and over the tasks both say so."
    )


def _row(report: Report, each: ArmResult, names: Iterable[str]) -> list[str]:
    compared = report.experiment.compared
    cells = [_shown(each.summary(name), column_of(name)[1], interval=name == compared) for name in names]
    there, held_out = report.reached(each), each.held_out
    if there is not None and held_out is not None:
        flipped = held_out.flipped
        cells.append(until_reached(there.at_s, there.low_s, there.high_s))
        cells += [_estimated(held_out.interquartile), "–" if flipped is None else f"{flipped:.3f}"]
    elif report.learns:
        cells += ["–"] * len(LEARNED)
    return [each.arm.name, *cells]


def _compared(each: Comparison, decimals: int, *, learns: bool) -> list[str]:
    learned = ["–", "–"] if learns else []
    if each.tasks is not None and each.improvement is not None:
        learned = [_apart(each.tasks, decimals), _estimated(each.improvement)]
    return [
        each.arm,
        each.other,
        _shown(each.ratio, 2),
        _apart(each.difference, decimals),
        *learned,
        each.verdict,
    ]


def _apart(apart: Difference, decimals: int) -> str:
    return _interval(apart.mean, (apart.low, apart.high) if math.isfinite(apart.low) else None, decimals)


def _estimated(found: Estimate) -> str:
    return _interval(found.value, found.interval, 3)


def _shown(found: Summary | None, decimals: int, *, interval: bool = True) -> str:
    if found is None:
        return "–"
    return _interval(found.mean, found.interval if interval else None, decimals)


def _interval(middle: float, bounds: tuple[float, float] | None, decimals: int) -> str:
    if bounds is None:
        return f"{middle:.{decimals}f}"
    low, high = bounds
    return f"{middle:.{decimals}f} ({low:.{decimals}f} to {high:.{decimals}f})"


def _costs(report: Report) -> str:
    """The model of the first arm; others differ in their tails and in how long updates take, which are all named."""
    costs = report.arms[0].arm.costs
    rows = [
        [name, f"{latency.mean_s:g} s"]
        for name, latency in (
            ("resetting a phone", costs.reset),
            ("a look at its screen", costs.look),
            ("an action on it", costs.act),
        )
    ]
    updates = sorted({each.arm.costs.update.mean_s for each in report.arms})
    rows += [
        ["an update", " or ".join(f"{mean:g} s" for mean in updates) + ("" if len(updates) == 1 else ", by arm")],
        ["a batch of n decisions", f"{costs.decision_s:g} s + n · {costs.decision_row_s:g} s"],
        ["a record", f"{costs.record_s:g} s"],
        ["a reload", f"{costs.reload_s:g} s"],
    ]
    tails = {each.arm.costs.look.sigma for each in report.arms}
    tail = ", ".join(f"{sigma:g}" for sigma in sorted(tails))
    return f"<p>{escape(costs.source)}</p>{_table(['what', 'mean'], rows)}<p>σ of the phones’ latencies: {tail}.</p>"


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{escape(cell)}</th>' for cell in head)}</tr>{lines}</table>"
