"""One episode as the pages get it: its record, and what the index knows of it. Pure but for what is passed in."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from distrl.evaluate.episode_page import action_text, staleness
from distrl.offline.find_episode import Found
from distrl.rollout.episode import NO_JUDGE
from distrl.types import Evaluation, ObjectRef, Point, Step, Task, Trajectory
from distrl.view.drawn import of_step
from distrl.view.rows import episode_row

FINAL = "final"
"""In place of a step's number: the last screen."""


def episode(
    run: str,
    found: Found,
    published: Sequence[tuple[int, int]],
    drawn: dict[str, Any] | None,
    known: Mapping[str, Any],
) -> dict[str, Any]:
    """JSON-able. published: of `staleness`. drawn: of `drawn.draws_of`. known: what the index adds, over the record's
    own fields."""
    played = found.trajectory
    row = asdict(episode_row(found.topic, found.position, found.record))
    del row["conditions"]
    judged = played.outcome_source not in ("", NO_JUDGE)
    verdict = {"source": played.outcome_source, "outcome": played.outcome.value, "reason": played.reason}
    images = _addresses(run, found)
    return {
        **row,
        "instruction": played.task.instruction,
        "attempt_id": played.attempt_id,
        "note": played.note,
        "reason": played.reason,
        "final_state": played.final_state,
        "validity_source": played.validity_source,
        "unmet": [asdict(each) for each in played.unmet],
        "judgements": [verdict] if judged else [],
        "task": task(played.task),
        "steps": [
            _step(step, images[step.screenshot.sha256], published) | of_step(drawn, number)
            for number, step in enumerate(played.steps)
        ],
        "final": {
            "image": None if played.final_screenshot is None else images[played.final_screenshot.sha256],
            "restless": played.final_restless,
        },
        "draws": None if drawn is None else {name: drawn[name] for name in ("recorded", "updates", "shown")},
        **known,
    }


def task(of: Task) -> dict[str, Any]:
    """JSON-able."""
    return {**asdict(of), "split": of.split.value, "params": dict(of.params)}


def screen_of(record: Trajectory | Evaluation, which: str) -> ObjectRef | None:
    """The screenshot of a step (a number from 0) or FINAL; None where there is none."""
    played = record.trajectory if isinstance(record, Evaluation) else record
    if which == FINAL:
        return played.final_screenshot
    number = int(which) if which.isascii() and which.isdigit() and len(which) < 9 else len(played.steps)
    return played.steps[number].screenshot if number < len(played.steps) else None


def _addresses(run: str, found: Found) -> dict[str, str]:
    """Of each screenshot, by its sha256: relative, of the first place in the episode that shows it, so that a browser
    fetches a screen that stays once. It has the content's hash, so that the picture may be cached for ever."""
    played = found.trajectory
    shown = [(str(number), step.screenshot) for number, step in enumerate(played.steps)]
    if played.final_screenshot is not None:
        shown.append((FINAL, played.final_screenshot))
    first: dict[str, str] = {}
    for which, ref in shown:
        first.setdefault(ref.sha256, which)
    at = f"api/runs/{quote(run)}/images/{found.topic}/{found.place}"
    return {sha256: f"{at}/{which}?sha256={quote(sha256, safe='')}" for sha256, which in first.items()}


def _step(step: Step, image: str | None, published: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """What no record holds is null, as the entropy where nobody knew it."""
    action = step.action
    return {
        "image": image,
        "width": None,
        "height": None,
        "action": {
            "kind": action.kind.value,
            "touch": _point(action.touch),
            "lift": _point(action.lift),
            "text": action.text,
        },
        "action_text": step.action_text,
        "caption": action_text(step),
        "logprob": _finite(step.logprob),
        "entropy": _finite(step.entropy),
        "tokens": len(step.action_ids),
        "version": step.version,
        "version_sha256": step.version_sha256,
        "behind": staleness(step, published),
        "at": step.at,
        "phone_ms": _finite(step.phone_ms),
        "adb_ms": _finite(step.adb_ms),
        "policy_ms": _finite(step.policy_ms),
        "publish_ms": _finite(step.publish_ms),
        "valid": step.valid,
        "held_back": step.held_back.value,
        "restless": step.restless,
    }


def _point(point: Point | None) -> list[float] | None:
    """None also for one that is no number: it cannot be drawn."""
    return None if point is None or not (math.isfinite(point.x) and math.isfinite(point.y)) else [point.x, point.y]


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
