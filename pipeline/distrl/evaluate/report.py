"""A run's report: report.html for people (self-contained) and report.json for programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from distrl.evaluate import curves, policies
from distrl.evaluate.facts import Facts, RunData, facts_of, success_of
from distrl.evaluate.page import html_page


def write_report(data: RunData, out: Path) -> Path:
    """Write `out`/report.html and `out`/report.json. Returns the path of the page."""
    out.mkdir(parents=True, exist_ok=True)
    facts = facts_of(data)
    page = out / "report.html"
    page.write_text(html_page(data, facts), encoding="utf-8")
    (out / "report.json").write_text(json.dumps(summary(data, facts), indent=2) + "\n", encoding="utf-8")
    return page


def summary(data: RunData, facts: Facts) -> dict[str, Any]:
    """report.json. Success is in [0, 1] and null where nothing was evaluated; times are seconds."""
    return {
        "success_before": success_of(facts.before),
        "success_after": success_of(facts.after),
        "held_out_in_training": facts.in_training,
        "no_success": [
            {
                "suite": each.suite,
                "family": each.family,
                "split": each.split.value if each.split else None,
                "instruction": each.instruction or None,
                "attempts": each.attempts,
            }
            for each in facts.unsolved
        ],
        "success_by_policy": policies.as_json(facts.by_policy, data.agents),
        "success_curve": [
            {
                "version": point.version,
                "trajectories": point.trajectories,
                "seconds": round(point.seconds, 3),
                "success": point.score.success,
                "low": point.score.interval[0],
                "high": point.score.interval[1],
                "episodes": point.score.episodes,
            }
            for point in facts.curve
        ],
        "trajectories": len(data.trajectories),
        "updates": len(data.updates),
        "versions_published": len(data.versions),
        "reload_seconds_p50": curves.percentile(facts.reloads, 0.5),
        "reload_seconds_p95": curves.percentile(facts.reloads, 0.95),
        "policy_lag_mean": sum(facts.lags) / len(facts.lags) if facts.lags else 0.0,
        "policy_lag_max": max(facts.lags, default=0),
        "trajectories_per_minute": curves.per_minute(data.trajectories, data.train_seconds),
        "setup_seconds": data.setup_seconds,
        "train_seconds": data.train_seconds,
        "seed": data.seed,
        "digests": dict(data.digests),
    }
