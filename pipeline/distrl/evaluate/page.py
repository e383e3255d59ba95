"""The report as one self-contained HTML page.

Text of records, models and users is escaped; the figures are drawn here from numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from distrl.evaluate import curves, figures, policies, strips
from distrl.evaluate.facts import Facts, RunData
from distrl.evaluate.failures import JudgedAttempt
from distrl.evaluate.markup import document, png_uri, visible
from distrl.tasks.unsolved import MIN_ATTEMPTS
from distrl.text import ranges
from distrl.types import LogPosition, Trajectory

CONDITIONS = 30
"""Most conditions that are listed."""
MOVING_WINDOW = 64
"""Training episodes in the moving success: its standard error is 6 points, and a run has hundreds of episodes."""


def html_page(data: RunData, facts: Facts, links: Mapping[LogPosition, str]) -> str:
    """links: of a record to its episode's page, relative to this one."""
    title = f"Run {visible(data.run)}"
    parts = [
        f"<header><h1>{title}</h1><p>{_headline(data, facts)}</p></header>",
        _tiles(data, facts),
        _section("Learning curve", _learning(data, facts)),
        _section("Held-out success by policy", policies.as_html(facts.by_policy, data.agents)),
        _section("Held-out success by family", _families(facts)),
        _section("Why the last version failed", _failed(facts, links)),
        _section("Tasks without a success", _unsolved(facts)),
        _section("Freshness", _freshness(facts)),
        _section("One task, before and after", _strips(data, facts)),
        _footer(data),
    ]
    return document(title, STYLE, "\n".join(parts))


def _headline(data: RunData, facts: Facts) -> str:
    if facts.before is None or facts.after is None or facts.before[0] == facts.after[0] or not facts.after[1]:
        return f"{facts.played} trajectories, {len(data.versions)} versions; nothing held out was compared yet."
    (first, _), (last, _) = (curves.score(side[1]).as_text(0) for side in (facts.before, facts.after))
    return (
        f"Held-out success went from <b>{first}</b> (version {facts.before[0]}) to "
        f"<b>{last}</b> (version {facts.after[0]}) with {facts.played} trajectories, of "
        f"{len(facts.after[1])} tasks that both have played, greedy decoding, outcomes from the phones’ own state."
    )


def _tiles(data: RunData, facts: Facts) -> str:
    mean_lag = sum(facts.lags) / len(facts.lags) if facts.lags else 0.0
    tiles = [
        ("success before", _share(facts.before)),
        ("success after", _share(facts.after)),
        ("trajectories", f"{facts.played}"),
        ("a minute", f"{curves.per_minute(facts.played, data.train_seconds):.0f}"),
        ("versions", f"{len(data.versions)}"),
        ("mean policy lag", f"{mean_lag:.2f}"),
        ("median reload", f"{curves.percentile(facts.reloads, 0.5):.2f} s"),
        ("training", f"{data.train_seconds / 60:.1f} min"),
    ]
    return '<div class="tiles">' + "".join(f"<div><b>{v}</b><span>{k}</span></div>" for k, v in tiles) + "</div>"


def _share(side: tuple[int, list[Trajectory]] | None) -> str:
    if side is None:
        return "–"
    success, interval = curves.score(side[1]).as_text(0)
    return f"{success} <small>{interval}</small>"


def _learning(data: RunData, facts: Facts) -> str:
    parts = []
    whole = [point for point in facts.curve if not point.unfinished]
    if whole:
        parts.append(
            '<div class="row">'
            + _figure(figures.curve(whole, lambda p: p.trajectories, "trajectories learned from"), "")
            + _figure(figures.curve(whole, lambda p: p.seconds / 60, "minutes since version 0"), "")
            + "</div><p>Validation tasks, greedy decoding; the band is the 95 % Wilson interval.</p>"
        )
    if left := [point.version for point in facts.curve if point.unfinished]:
        parts.append(
            f"<p>Left out is version {ranges(left)}, whose evaluation was still going on: the tasks that end soon come "
            "first.</p>"
        )
    if facts.other_validations:
        parts.append(f"<p>{facts.other_validations} evaluations of other suites are left out.</p>")
    moving = curves.moving_success(data.trajectories, MOVING_WINDOW)
    if moving:
        note = f"Training tasks as they were played, by the sampling policy: success among the last {MOVING_WINDOW}."
        parts.append(_figure(figures.training(moving, MOVING_WINDOW), note))
    return "".join(parts) or "<p>No validation yet.</p>"


def _families(facts: Facts) -> str:
    if facts.before is None or facts.after is None:
        return "<p>No held-out evaluation yet.</p>"
    before, after = curves.by_family(facts.before[1]), curves.by_family(facts.after[1])
    rows = "".join(
        f"<tr><td>{visible(name)}</td>{_cell(before.get(name))}{_cell(after.get(name))}</tr>"
        for name in sorted({*before, *after})
    )
    table = f"<table><tr><th>family</th><th>before</th><th>after</th></tr>{rows}</table>"
    shared = f"<p>{facts.in_training} of {facts.held_out} held-out instructions are ones that training had.</p>"
    if facts.other_suites:
        shared += f"<p>{facts.other_suites} evaluations of other suites are left out.</p>"
    whiskers = "Bars are success, whiskers the 95 % Wilson interval."
    return _figure(figures.families(before, after), whiskers) + table + shared


def _failed(facts: Facts, links: Mapping[LogPosition, str]) -> str:
    if not facts.failed:
        return "<p>No failed held-out attempt.</p>"
    lines = "".join(
        f"<tr><td>{visible(each.family)}</td><td><code>{visible(each.condition)}</code></td>"
        f"<td>{len(each.attempts)} of {each.failures}</td><td>{_links(each.attempts, links)}</td></tr>"
        for each in facts.failed[:CONDITIONS]
    )
    more = len(facts.failed) - CONDITIONS
    return (
        "<p>Conditions of held-out tasks that the phone’s last state did not meet, and some of these attempts as film "
        "strips; <code>distrl show</code> makes one of any.</p>"
        f"<table><tr><th>family</th><th>condition not met</th><th>failed</th><th>episodes</th></tr>{lines}</table>"
        + (f"<p>{more} rarer conditions are in report.json.</p>" if more > 0 else "")
    )


def _links(attempts: Iterable[JudgedAttempt], links: Mapping[LogPosition, str]) -> str:
    return " ".join(
        f'<a href="{escape(links[each.position])}">{visible(each.trajectory.task_id)}</a>'
        for each in attempts
        if each.position in links
    )


def _unsolved(facts: Facts) -> str:
    if not facts.unsolved:
        return f"<p>No task with {MIN_ATTEMPTS} judged attempts or more is without a success.</p>"
    rows = "".join(
        f"<tr><td>{visible(each.instruction) or 'any task of the family'}</td><td>{visible(each.suite)}</td>"
        f"<td>{visible(each.family)}</td><td>{each.split.value if each.split else 'all'}</td>"
        f"<td>{each.attempts}</td></tr>"
        for each in facts.unsolved
    )
    return (
        f"<p>No success in {MIN_ATTEMPTS} judged attempts or more: the policy cannot do these yet, or nobody can. "
        "<code>distrl tasks oracle</code>, with <code>-s feeder.tasks=FILE</code> for a list, lets a script play "
        "them.</p>"
        f"<table><tr><th>task</th><th>suite</th><th>family</th><th>split</th><th>attempts</th></tr>{rows}</table>"
    )


def _cell(scored: curves.SuccessRate | None) -> str:
    return "<td>–</td>" if scored is None else f"<td>{scored.successes} of {scored.episodes}</td>"


def _freshness(facts: Facts) -> str:
    shown = []
    if facts.lags:
        shown.append(_figure(figures.lags(facts.lags), "How many versions behind a trajectory was when first learned."))
    if facts.reloads:
        shown.append(
            _figure(figures.reloads(facts.reloads), "From a version’s publication to a worker’s first action.")
        )
    return f'<div class="row">{"".join(shown)}</div>' if shown else "<p>Nothing was learned yet.</p>"


def _strips(data: RunData, facts: Facts) -> str:
    if facts.before is None or facts.after is None:
        return "<p>No held-out evaluation yet.</p>"
    pair = strips.pick(facts.before[1], facts.after[1])
    if pair is None:
        return "<p>No held-out task failed before and was solved after.</p>"
    task = pair[0].task
    shown = [
        strips.strip(f"version {facts.before[0]}: {pair[0].outcome.value}", pair[0], data.read),
        strips.strip(f"version {facts.after[0]}: {pair[1].outcome.value}", pair[1], data.read),
    ]
    name = f"<p>“{visible(task.instruction)}” <small>{visible(task.family)}, {visible(task.task_id)}</small></p>"
    return name + "".join(_strip(strip) for strip in shown)


def _strip(strip: strips.Strip) -> str:
    frames = "".join(
        f"<figure>{_image(frame.png)}<figcaption>{visible(frame.caption)}</figcaption></figure>"
        for frame in strip.frames
    )
    return f'<h3>{visible(strip.title)}</h3><div class="strip">{frames}</div>'


def _image(png: bytes | None) -> str:
    if png is None:
        return '<div class="gone">no screen</div>'
    return f'<img alt="" src="{png_uri(png)}">'


def _section(title: str, body: str) -> str:
    return f"<section><h2>{title}</h2>{body}</section>"


def _figure(svg: str, note: str) -> str:
    """svg: drawn by figures.py."""
    return f'<figure class="plot">{svg}<figcaption>{note}</figcaption></figure>'


def _footer(data: RunData) -> str:
    rows = "".join(
        f"<tr><td>{visible(name)}</td><td><code>{visible(digest)}</code></td></tr>"
        for name, digest in sorted(data.digests.items())
    )
    return (
        f"<footer><p>Seed {data.seed} · {len(data.updates)} updates · set-up {data.setup_seconds:.0f} s · "
        f"training {data.train_seconds:.0f} s. Every number is computed from the run’s topics.</p>"
        f"<table>{rows}</table></footer>"
    )


STYLE = """
:root{--ink:#2b3440;--muted:#7b8794;--line:#e4e8ec;--paper:#fbfbf9;--accent:#2f7f86}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 system-ui,sans-serif}
main{max-width:60rem;margin:0 auto;padding:3rem 1.5rem 4rem}
h1{font-size:2rem;font-weight:600;margin:0 0 .4rem;letter-spacing:-.01em}
h2{font-size:1.15rem;font-weight:600;margin:0 0 1rem}
h3{font-size:.95rem;font-weight:600;color:var(--muted);margin:1.4rem 0 .5rem}
section{background:#fff;border:1px solid var(--line);border-radius:12px;padding:1.5rem;margin:1.25rem 0}
p,figcaption,small,footer{color:var(--muted)}header b{color:var(--accent)}
header p{max-width:46rem;font-size:1.05rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fill,minmax(11rem,1fr));gap:1rem;margin:1.5rem 0}
.tiles div{background:#fff;border:1px solid var(--line);border-radius:12px;padding:1rem 1.2rem}
.tiles b{display:block;font-size:1.45rem;font-weight:600}.tiles small{font-size:.75rem;font-weight:400}
.tiles span{color:var(--muted);font-size:.85rem}
.row{display:grid;grid-template-columns:repeat(auto-fit,minmax(18rem,1fr));gap:1.5rem}
figure{margin:0}.plot svg{width:100%;height:auto}figcaption{font-size:.85rem}
.strip{display:flex;gap:.8rem;overflow-x:auto;padding-bottom:.5rem}
.strip figure{flex:0 0 9.4rem}.strip img,.gone{width:100%;border:1px solid var(--line);border-radius:8px;display:block}
.strip figcaption{margin-top:.35rem;overflow-wrap:anywhere}
.gone{height:18rem;display:grid;place-items:center;color:var(--muted)}
table{border-collapse:collapse;font-size:.9rem}td,th{padding:.3rem 1.2rem .3rem 0;text-align:left;font-weight:400}
th{color:var(--muted)}code{font-size:.8rem;overflow-wrap:anywhere}footer{font-size:.85rem;padding:0 .25rem}
"""
