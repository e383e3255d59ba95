"""One episode as a film strip: a self-contained HTML page of its screens, actions and result. Pure but for `read`.

Instruction, typed text, a judge's words and what the phone says are untrusted: all of it is escaped.
"""

from __future__ import annotations

import io
import json
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from PIL import Image

from distrl.errors import DistrlError
from distrl.evaluate.curves import FirstFold
from distrl.evaluate.failures import mode_of
from distrl.evaluate.markup import document, png_uri, rows, visible
from distrl.evaluate.policies import PolicyId, name_of
from distrl.evaluate.strips import caption, opened_screen, remarks
from distrl.evaluate.touches import touch_svg
from distrl.rollout.episode import NO_JUDGE
from distrl.types import PROMPTED, SCRIPTED, Action, LogPosition, ObjectRef, Outcome, Step, Trajectory, Version

LARGE_BYTES: Final = 200_000
"""A larger screenshot is drawn SMALL_PX wide at most: a real phone's have 1 MB, and a page dozens of them."""
SMALL_PX: Final = 480
HIGH_PX: Final = 4 * SMALL_PX
"""Most of its height then; a phone's screen is about twice as high as wide."""
MISSING_SIZE: Final = (9, 20)
"""Proportions of the box of a screen that is not there."""
NAME_CHARACTERS: Final = 60
"""Most characters of a task id in a file name."""

Read = Callable[[ObjectRef], bytes]


@dataclass(frozen=True, slots=True)
class Episode:
    """What a page shows."""

    run: str
    topic: str
    """A key of TOPICS: trajectories, evaluations or demonstrations."""
    position: LogPosition
    trajectory: Trajectory
    versions: Sequence[Version] = ()
    """All published ones, for the staleness of each step; empty: unknown."""
    learned: FirstFold | None = None
    """The update that first folded it."""
    evaluated: PolicyId | None = None
    """The policy that it counts for; None outside of evaluations."""
    agents: Mapping[str, str] | None = None
    """sha256 -> name of agents without weights."""


def page_name(episode: Episode) -> str:
    """A file name that is the same for the same record, whatever its task id is: that text is untrusted."""
    at = episode.position
    task_id = re.sub(r"[^A-Za-z0-9._-]", "_", episode.trajectory.task_id)[:NAME_CHARACTERS]
    return f"{episode.run}-{episode.topic}-{at.partition}-{at.offset}-{task_id}.html"


def episode_page(episode: Episode, read: Read) -> str:
    """The page. read: the verified bytes of a screenshot; may raise DistrlError, OSError or ValueError, which the
    frame then says in place of it.
    """
    played = episode.trajectory
    parts = [
        _header(episode),
        _why(played),
        f'<section><h2>Steps</h2><div class="strip">{_frames(episode, read)}</div>{LEGEND}</section>',
        _phone(played),
        _identity(episode),
    ]
    return document(visible(played.task_id), STYLE, "\n".join(filter(None, parts)))


def _header(episode: Episode) -> str:
    played, task = episode.trajectory, episode.trajectory.task
    mode = mode_of(played)
    judge = played.outcome_source
    judged = "nobody judged it" if judge in (NO_JUDGE, "") else f"judged by {visible(judge)}"
    facts = [
        f'<b class="outcome {played.outcome.value}">{played.outcome.value}</b>',
        judged,
        visible(mode.value) if mode else "",
        f"{len(played.steps)} of {task.max_steps} steps",
        f"{max(0, played.finished_at - played.started_at) / 1000:.1f} s",
    ]
    of = f"{visible(task.suite)} · {visible(task.family)} · {task.split.value}"
    return f"<header><p>{of}</p><h1>{visible(task.instruction)}</h1><p>{' · '.join(filter(None, facts))}</p></header>"


def _why(played: Trajectory) -> str:
    said = {"the judge": visible(played.reason), "note": visible(played.note)}
    body = rows(said) if any(said.values()) else ""
    if played.unmet:
        lines = "".join(
            f"<tr><td><code>{visible(each.path)}</code></td><td>{visible(each.rule)}</td>"
            f'<td class="wanted">{visible(each.wanted)}</td><td class="found">{visible(each.found)}</td></tr>'
            for each in played.unmet
        )
        body = (
            "<table><tr><th>condition</th><th>rule</th><th>wanted</th><th>found</th></tr>" + lines + "</table>" + body
        )
    elif played.outcome is Outcome.FAILURE and not played.reason:
        body = "<p>The record does not say which condition failed: it is of an older version.</p>" + body
    title = "What failed" if played.outcome is Outcome.FAILURE else "What was said of it"
    return f"<section><h2>{title}</h2>{body}</section>" if body else ""


def _frames(episode: Episode, read: Read) -> str:
    played = episode.trajectory
    published = sorted((version.published_at, version.version) for version in episode.versions)
    frames = [
        _frame(
            _picture(step.screenshot, step.action, read),
            f"{number}. {action_text(step)}",
            _facts(step, played.started_at, published),
            _marks(step),
        )
        for number, step in enumerate(played.steps, 1)
    ]
    last = played.final_screenshot
    if last is not None:
        frames.append(
            _frame(
                _picture(last, None, read),
                f"the end: {played.outcome.value}",
                [],
                ["the screen never rested"] if played.final_restless else [],
            )
        )
    return "".join(frames) or "<p>It has no steps.</p>"


def _frame(picture: str, title: str, facts: Sequence[str], marks: Sequence[str]) -> str:
    lines = "".join(f"<li>{visible(fact)}</li>" for fact in facts)
    flags = "".join(f"<li><mark>{visible(mark)}</mark></li>" for mark in marks)
    return f"<figure>{picture}<figcaption><b>{visible(title)}</b><ul>{lines}{flags}</ul></figcaption></figure>"


def _picture(ref: ObjectRef, action: Action | None, read: Read) -> str:
    try:
        png, size = embedded(read(ref))
        inside = f'<img alt="" width="{size[0]}" height="{size[1]}" src="{png_uri(png)}">'
    except (DistrlError, OSError, ValueError) as error:
        what = error.what if isinstance(error, DistrlError) else str(error)
        size = (MISSING_SIZE[0] * 20, MISSING_SIZE[1] * 20)
        inside = f'<div class="gone">no screenshot: {visible(what)}<br><code>{visible(ref.key)}</code></div>'
    touch = touch_svg(action, *size) if action is not None else ""
    return f'<div class="screen">{inside}{touch}</div>'


def embedded(png: bytes) -> tuple[bytes, tuple[int, int]]:
    """The picture as it goes into the page, and its size in px. Raises ImageError for bytes that are no picture of a
    screen."""
    image = opened_screen(png)
    if len(png) <= LARGE_BYTES:
        return png, image.size
    image.thumbnail((SMALL_PX, HIGH_PX), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue(), image.size


def action_text(step: Step) -> str:
    """The action in words, with its place. Untrusted."""
    points = [point for point in (step.action.touch, step.action.lift) if point is not None]
    return " ".join([caption(step.action), " to ".join(f"({point.x:.2f}, {point.y:.2f})" for point in points)]).strip()


def _facts(step: Step, started_at: int, published: Sequence[tuple[int, int]]) -> list[str]:
    facts = [
        _probability(step),
        _entropy(step),
        _chooser(step, published),
        f"after {max(0, step.at - started_at) / 1000:.1f} s",
    ]
    spent = {"policy": step.policy_ms, "phone": step.phone_ms, "adb": step.adb_ms, "store": step.publish_ms}
    times = ", ".join(f"{name} {ms:.0f}" for name, ms in spent.items() if ms)
    return [*filter(None, facts), *([f"ms: {times}"] if times else [])]


def _probability(step: Step) -> str:
    if step.version == PROMPTED:
        return "probability unknown"
    if not step.logprob <= 0.0:  # also not a number
        return f"log-probability {step.logprob:g}"
    likely = math.exp(step.logprob)
    text = f"{likely:.3f}" if likely >= 0.001 else f"{likely:.1e}"
    return f"probability {text} (log {step.logprob + 0.0:.2f})"


def _entropy(step: Step) -> str:
    return "" if step.entropy is None else f"entropy {step.entropy:.2f} a token"


def _chooser(step: Step, published: Sequence[tuple[int, int]]) -> str:
    if step.version == SCRIPTED:
        return "chosen by a script or a person"
    if step.version == PROMPTED:
        return f"agent {step.version_sha256[:12]}"
    behind = staleness(step, published)
    return f"version {step.version}" + ("" if behind is None else f", {behind} behind")


def staleness(step: Step, published: Sequence[tuple[int, int]]) -> int | None:
    """Versions between the one that chose and the newest published when it did; None where that is unknown.

    published: (ms since the epoch, version), ascending.
    """
    until = bisect_right(published, (step.at, math.inf))
    if step.version < 0 or until == 0:
        return None
    return max(0, max(version for _, version in published[:until]) - step.version)


def _marks(step: Step) -> list[str]:
    return [*remarks(step), *(["the screen never rested"] if step.restless else [])]


def _phone(played: Trajectory) -> str:
    """The phone at the end and at the start."""
    task = played.task
    facts = {
        "differs from the start": f"<pre>{shown_json(played.final_state)}</pre>" if played.final_state else "",
        "start": f"<pre>{shown_json(task.setup)}</pre>",
        "seed": str(task.phone_seed),
        "parameters": f"<pre>{shown_json(json.dumps(dict(task.params)))}</pre>" if task.params else "",
    }
    return f"<section><h2>The phone</h2>{rows(facts)}</section>"


def shown_json(text: str) -> str:
    """Untrusted JSON, indented, as HTML; as it is where it is none."""
    with suppress(ValueError, RecursionError):
        text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    return "\n".join(visible(line) for line in text.split("\n"))


def _identity(episode: Episode) -> str:
    played, at = episode.trajectory, episode.position
    versions = sorted({step.version for step in played.steps})
    facts = {
        "run": visible(episode.run),
        "record": f"<code>{visible(at.topic)}</code>, partition {at.partition}, offset {at.offset}",
        "task": f"<code>{visible(played.task_id)}</code>",
        "attempt": f"<code>{visible(played.attempt_id)}</code>",
        "counts for": visible(name_of(episode.evaluated, episode.agents or {})) if episode.evaluated else "",
        "steps by versions": visible(", ".join(map(str, versions))),
        "learned": _learned(episode, versions),
        "worker": visible(played.worker),
        "phone": visible(played.device),
        "began": _utc(played.started_at),
        "actions judged by": visible(played.validity_source),
        "demonstration": "yes" if played.is_expert else "",
        "as JSON": f"<code>{visible(_replay(episode))}</code>",
    }
    return f"<footer><h2>Record</h2>{rows(facts)}</footer>"


def _learned(episode: Episode, versions: Sequence[int]) -> str:
    if episode.learned is None:
        return ""
    acted = [version for version in versions if version >= 0]
    behind = f", {max(0, episode.learned.newest - min(acted))} versions behind" if acted else ""
    return f"first by update {episode.learned.update}{behind}"


def _replay(episode: Episode) -> str:
    at = episode.position
    place = f"--topic {episode.topic} --partition {at.partition} --from {at.offset} --to {at.offset + 1}"
    return f"distrl replay --run {episode.run} {place} --print"


def _utc(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return ""


LEGEND: Final = (
    "<p><small>A ring is a tap, an arrow a swipe. Probability: of all tokens of the action together, as the policy "
    "recorded it when it chose. Entropy: of the choice of a token, in nats, mean over those of the action. Behind: how "
    "many versions newer the newest one was that had been published by then, by the clocks of worker and learner. In "
    "the record’s table, “learned” compares with the newest version when the update that first took it in was "
    "journalled.</small></p>"
)

STYLE: Final = """
:root{color-scheme:light dark;--ink:#2b3440;--muted:#6b7785;--line:#dde2e7;--paper:#fbfbf9;--card:#fff;
--bad:#b3361f;--good:#1f7a4d;--touch:#e2583e}
@media (prefers-color-scheme:dark){:root{--ink:#e3e7eb;--muted:#98a4b0;--line:#3a434d;--paper:#15191d;--card:#1d2329;
--bad:#ff8f78;--good:#6fd3a0}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:80rem;margin:0 auto;padding:2rem 1.25rem 3rem}
h1{font-size:1.6rem;font-weight:600;margin:.1rem 0 .4rem;overflow-wrap:anywhere}
h2{font-size:1.05rem;font-weight:600;margin:0 0 .7rem}
header p,small,th,figcaption{color:var(--muted)}header p{margin:0}
.outcome{color:var(--ink)}.success{color:var(--good)}.failure{color:var(--bad)}
section,footer{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:1.1rem;margin:1rem 0}
.strip{display:flex;flex-wrap:wrap;gap:1.2rem 1rem}
figure{flex:0 0 12.5rem;margin:0}figcaption b{color:var(--ink);overflow-wrap:anywhere}
figcaption ul{list-style:none;margin:.2rem 0 0;padding:0;font-size:.82rem}
mark{background:none;color:var(--bad);font-weight:600}
.screen{position:relative;border:1px solid var(--line);border-radius:8px;overflow:hidden;margin-bottom:.4rem}
.screen img{display:block;width:100%;height:auto}
.gone{aspect-ratio:9/20;display:grid;align-content:center;gap:.4rem;padding:.8rem;text-align:center;
color:var(--muted);font-size:.82rem;overflow-wrap:anywhere}
.touch{position:absolute;inset:0;width:100%;height:100%;stroke:var(--touch)}.dot,.head{fill:var(--touch)}
table{border-collapse:collapse}td,th{padding:.25rem 1.1rem .25rem 0;text-align:left;vertical-align:top;
font-weight:400;overflow-wrap:anywhere}
.found{color:var(--bad)}code,pre{font-size:.82rem;overflow-wrap:anywhere}pre{margin:0;white-space:pre-wrap}
"""
