"""The result of an experiment as one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from distrl.evaluate.markup import document, png_uri
from distrl.evaluate.page import STYLE
from distrl.experiment.report import ArmResult, Comparison, Report
from distrl.experiment.statistics import Summary

COLUMNS: Final = {
    "success_first": ("held-out, first", 3),
    "success_last": ("held-out, last", 3),
    "mean_success": ("mean over time", 3),
    "per_hour": ("an hour", 1),
    "bound_per_hour": ("bound", 1),
    "share_of_bound": ("of the bound", 3),
    "own_time_share": ("phones at work", 3),
    "mean_lag": ("mean lag", 2),
    "max_lag": ("largest lag", 1),
    "episode_own_s": ("episode, s", 0),
}
"""Figure -> its column's head and its decimals. Intervals of all are in report.json."""


def html_page(report: Report, png: bytes) -> str:
    title = escape(report.experiment.title)
    hours = report.experiment.until[report.preset] / 3600
    seeds = "seed" if len(report.seeds) == 1 else "seeds"
    parts = [
        f"<header><h1>{title}</h1><p>{escape(report.experiment.about)}</p>"
        f"<p>{hours:.2f} virtual hours, {seeds} {', '.join(map(str, report.seeds))}: "
        f"<code>{escape(report.command)}</code></p></header>",
        f'<section><figure><img alt="{title}" style="width:100%" src="{png_uri(png)}"></figure></section>',
        f"<section><h2>Asynchronous against synchronous</h2>{_table(*comparison_table(report))}</section>",
        f"<section><h2>Every arm</h2>{_table(*arm_table(report))}"
        "<p>Means over the seeds, with the 95 % interval of their bootstrap.</p></section>",
        f"<section><h2>What was assumed</h2>{_costs(report)}</section>",
    ]
    return document(title, STYLE, "\n".join(parts))


def arm_table(report: Report) -> tuple[list[str], list[list[str]]]:
    """Head and rows, as text."""
    shown = [name for name in COLUMNS if name in report.arms[0].figures]
    head = ["arm", *(COLUMNS[name][0] for name in shown)]
    return head, [_row(each, shown, report.experiment.compared) for each in report.arms]


def comparison_table(report: Report) -> tuple[list[str], list[list[str]]]:
    name, decimals = COLUMNS[report.experiment.compared]
    head = ["arm", "against", f"{name}: ratio", "difference", "which is"]
    return head, [_compared(each, decimals) for each in report.comparisons]


def _row(each: ArmResult, names: Iterable[str], compared: str) -> list[str]:
    cells = (_shown(each.summary(name), COLUMNS[name][1], interval=name == compared) for name in names)
    return [each.arm.name, *cells]


def _compared(each: Comparison, decimals: int) -> list[str]:
    apart = each.difference
    return [
        each.arm,
        each.other,
        _shown(each.ratio, 2),
        f"{apart.mean:.{decimals}f} ({apart.low:.{decimals}f} to {apart.high:.{decimals}f})",
        apart.verdict,
    ]


def _shown(found: Summary | None, decimals: int, *, interval: bool = True) -> str:
    if found is None:
        return "–"
    mean = f"{found.mean:.{decimals}f}"
    if found.seeds < 2 or not interval:
        return mean
    return f"{mean} ({found.low:.{decimals}f} to {found.high:.{decimals}f})"


def _costs(report: Report) -> str:
    """The model of the first arm; arms differ in their tails, which are named after."""
    costs = report.arms[0].arm.costs
    rows = [
        [name, f"{latency.mean_s:g} s"]
        for name, latency in (
            ("resetting a phone", costs.reset),
            ("a look at its screen", costs.look),
            ("an action on it", costs.act),
            ("an update", costs.update),
        )
    ]
    rows += [
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
