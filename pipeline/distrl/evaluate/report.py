"""A run's report: report.html for people (self-contained) and report.json for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from distrl.evaluate import curves, policies
from distrl.evaluate.episode_page import Episode, episode_page, page_name
from distrl.evaluate.facts import Facts, RunData, facts_of, success_of
from distrl.evaluate.failures import FailedCondition, JudgedAttempt
from distrl.evaluate.page import html_page
from distrl.evaluate.policies import PolicyId
from distrl.files import make_folder, write
from distrl.types import LogPosition

EPISODES: Final = "episodes"
"""Folder of the pages of single episodes, beside the report."""
PAGES: Final = 24
"""Most pages of episodes: each holds its screenshots, about 100 kB in all."""
PER_CONDITION: Final = 2


def write_report(data: RunData, out: Path) -> Path:
    """Write `out`/report.html, `out`/report.json, and pages of some failed episodes, which the report links.

    Returns the path of the report's page. Raises ConfigError where the folder cannot be written.
    """
    make_folder(out)
    facts = facts_of(data)
    page = out / "report.html"
    links: dict[LogPosition, str] = {}
    for each in pages_of(facts.failed):
        episode = _episode(data, each)
        links[each.position] = f"{EPISODES}/{page_name(episode)}"
        make_folder(out / EPISODES)
        write(out / links[each.position], episode_page(episode, data.read).encode())
    write(page, html_page(data, facts, links).encode())
    write(out / "report.json", (json.dumps(summary(data, facts), indent=2) + "\n").encode())
    return page


def pages_of(failed: Iterable[FailedCondition]) -> list[JudgedAttempt]:
    """The attempts that get a page: of each condition the first PER_CONDITION, the most frequent conditions first."""
    chosen: dict[LogPosition, JudgedAttempt] = {}
    for condition in failed:
        placed = [each for each in condition.attempts if each.position.offset >= 0]
        for each in placed[:PER_CONDITION]:
            if len(chosen) < PAGES:
                chosen[each.position] = each
    return list(chosen.values())


def _episode(data: RunData, attempt: JudgedAttempt) -> Episode:
    played = attempt.trajectory
    return Episode(
        data.run,
        "evaluations",
        attempt.position,
        played,
        data.versions,
        evaluated=PolicyId(attempt.version, next((step.version_sha256 for step in played.steps), "")),
    )


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
        "failed_conditions": [each.to_json() for each in facts.failed],
        "success_by_policy": policies.as_json(facts.by_policy, data.agents),
        "success_curve": [
            {
                "version": point.version,
                "trajectories": point.trajectories,
                "seconds": round(point.seconds, 3),
                "success": point.score.known,
                "low": point.score.interval[0],
                "high": point.score.interval[1],
                "episodes": point.score.episodes,
                "unfinished": point.unfinished,
            }
            for point in facts.curve
        ],
        "trajectories": facts.played,
        "interrupted": len(data.trajectories) - facts.played,
        "updates": len(data.updates),
        "versions_published": len(data.versions),
        "reload_seconds_p50": curves.percentile(facts.reloads, 0.5),
        "reload_seconds_p95": curves.percentile(facts.reloads, 0.95),
        "policy_lag_mean": sum(facts.lags) / len(facts.lags) if facts.lags else 0.0,
        "policy_lag_max": max(facts.lags, default=0),
        "trajectories_per_minute": curves.per_minute(facts.played, data.train_seconds),
        "setup_seconds": data.setup_seconds,
        "train_seconds": data.train_seconds,
        "seed": data.seed,
        "digests": dict(data.digests),
    }
