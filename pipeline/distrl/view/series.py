"""What the charts of a run show, and its versions and devices: an open connection in, JSON-able values out."""

from __future__ import annotations

import json
import sqlite3
from typing import Any, Final, TypeVar

from distrl.evaluate.curves import percentile
from distrl.view import figures
from distrl.view.drawn import LEARNED
from distrl.view.filters import Page
from distrl.view.index import IN_FORCE
from distrl.view.queries import Row, columns, compared_scores, parsed, rate, scores, version_scores

T = TypeVar("T")

POINTS: Final = 2_000
"""Most points of a chart's line: more than a screen has columns."""
BINS: Final = 120
"""Time bins of the collection."""
SUCCESS: Final = ("version", "at", "rate", "low", "high", "n", "policy", "unfinished")
LONGEST_EPISODE_MS: Final = 3_600_000
"""An episode that takes longer does not count as one that a worker was in: it bounds what is looked through."""
DEVICE_EPISODES: Final = 500
"""Last episodes of a device that its step times are computed from."""


def series(connection: sqlite3.Connection, since: int | None, to: int | None) -> Row:
    """All charts. since, to: ms since the epoch; None: the log's first and last episode or version."""
    low, high = _bounds(connection, since, to)
    scored = [each for each in version_scores(connection) if each["at"] is None or low <= each["at"] <= high]
    found = connection.execute(
        "SELECT version, at FROM versions WHERE at BETWEEN ? AND ? ORDER BY version", (low, high)
    )
    return {
        "from": low,
        "to": high,
        "success": {**columns(scored, SUCCESS), **{k: scored[0][k] if scored else None for k in ("split", "suite")}},
        "updates": _updates(connection, low, high),
        "collection": _collection(connection, low, high),
        "reloads": _reloads(connection, low, high),
        "versions": columns(_thinned([dict(row) for row in found]), ("version", "at")),
    }


def _bounds(connection: sqlite3.Connection, since: int | None, to: int | None) -> tuple[int, int]:
    first, last = connection.execute(
        "SELECT min(low), max(high) FROM (SELECT min(first_at) AS low, max(last_at) AS high FROM totals "
        "WHERE topic != 'demonstrations' UNION ALL SELECT min(at), max(at) FROM updates "
        "UNION ALL SELECT min(at), max(at) FROM versions)"
    ).fetchone()
    return (first or 0) if since is None else since, (last or 0) if to is None else to


def _updates(connection: sqlite3.Connection, low: int, high: int) -> Row:
    """The journal's updates with the learner's figures: those recorded of them, else what heartbeats said."""
    numbers = [
        u for (u,) in connection.execute("SELECT u FROM updates WHERE at BETWEEN ? AND ? ORDER BY u", (low, high))
    ]
    # Figures of those only: all of a long run would be hundreds of MB.
    rows = connection.execute(
        f'SELECT updates.u AS "update", updates.at AS at, {figures.VALUES} AS "values" '
        f"FROM {figures.JOINED} WHERE updates.u IN (SELECT value FROM json_each(?)) ORDER BY 1",
        [json.dumps(_thinned(numbers))],
    ).fetchall()
    metrics = [parsed(row["values"]) if row["values"] else {} for row in rows]
    names = sorted({name for each in metrics for name in each})
    return {
        **columns(rows, ("update", "at")),
        "metrics": {name: [each.get(name) for each in metrics] for name in names},
    }


def _collection(connection: sqlite3.Connection, low: int, high: int) -> Row:
    """Trajectories by the time at which they ended. success: share of those whose outcome is known."""
    width = max(1, -(-(high - low + 1) // BINS))
    found = connection.execute(
        "SELECT (finished_at - ?1) / ?2 AS bin, count(*) AS episodes, avg(lag) AS lag, "
        "sum(outcome = 'success') AS won, sum(outcome IN ('success', 'failure')) AS known, "
        "avg(max(0, finished_at - started_at)) / 1000 AS seconds FROM episodes "
        "WHERE topic = 'trajectories' AND finished_at BETWEEN ?3 AND ?4 GROUP BY bin ORDER BY bin",
        (low, width, low, high),
    ).fetchall()
    return {
        "bin_ms": width,
        "at": [low + row["bin"] * width for row in found],
        "episodes": [row["episodes"] for row in found],
        "success": [rate(row["won"], row["known"])["rate"] for row in found],
        "lag": [row["lag"] for row in found],
        "seconds": [row["seconds"] for row in found],
    }


def _reloads(connection: sqlite3.Connection, low: int, high: int) -> Row:
    """Seconds from a version's publication to the first step that a worker chose with it, as `curves.reload_seconds`:
    of the workers that were in an episode then. (A `+` lets SQLite search by the lower bound, too.)
    """
    found = connection.execute(
        "SELECT versions.version AS version, versions.at AS at, max(0, uses.at - versions.at) / 1000.0 AS seconds "
        "FROM versions JOIN uses ON uses.version = versions.version WHERE versions.at BETWEEN ? AND ? AND EXISTS ("
        "SELECT 1 FROM episodes WHERE episodes.worker = uses.worker AND topic = 'trajectories' "
        "AND finished_at BETWEEN +versions.at AND versions.at + ? AND started_at <= versions.at) ORDER BY 1",
        (low, high, LONGEST_EPISODE_MS),
    )
    by_version: dict[tuple[int, int], list[float]] = {}
    for row in found:
        by_version.setdefault((row["version"], row["at"]), []).append(row["seconds"])
    rows = [
        {"version": number, "at": at, "median": percentile(times, 0.5), "worst": max(times)}
        for (number, at), times in by_version.items()
    ]
    return columns(_thinned(rows), ("version", "at", "median", "worst"))


def _thinned(rows: list[T]) -> list[T]:
    """At most POINTS of them, evenly, with the last one."""
    step = -(-len(rows) // POINTS) or 1
    return rows[::-1][::step][::-1]


def versions(connection: sqlite3.Connection, page: Page) -> Row:
    """One page of versions, newest first."""
    (total,) = connection.execute("SELECT count(*) FROM versions").fetchone()
    scored = {each["version"]: each for each in compared_scores(connection)}
    found = connection.execute(
        f"SELECT {VERSION} FROM versions ORDER BY version DESC LIMIT ? OFFSET ?", (page.limit, page.offset)
    )
    return {"total": total, "rows": [_version(row, scored) for row in found]}


VERSION: Final = ", ".join(
    [
        'version, parent, at, sha256, size, "update" + 1 AS updates, "update", base_model_sha256, fingerprint',
        *(
            f'CASE WHEN {IN_FORCE} THEN (SELECT max({topic}) FROM updates WHERE u <= versions."update") END AS {topic}'
            for topic in LEARNED
        ),
    ]
)


def _version(row: sqlite3.Row, scored: dict[int, Row]) -> Row:
    found = scored.get(row["version"])
    names = ("rate", "low", "high", "n")
    return {**dict(row), "success": {name: found[name] for name in names} if found is not None else None}


def version(connection: sqlite3.Connection, number: int) -> Row | None:
    """One version, with what was folded first since its parent, and its evaluations; None where there is none."""
    row = connection.execute(f"SELECT {VERSION} FROM versions WHERE version = ?", [number]).fetchone()
    if row is None:
        return None
    parent = connection.execute(
        f"SELECT {VERSION} FROM versions WHERE version = ?", [-1 if row["parent"] is None else row["parent"]]
    ).fetchone()
    groups = connection.execute(
        "SELECT DISTINCT split, suite FROM episodes WHERE topic = 'evaluations' AND evaluated = ? ORDER BY 1, 2",
        [number],
    ).fetchall()
    return {
        **_version(row, {each["version"]: each for each in compared_scores(connection)}),
        "parent_sha256": parent["sha256"] if parent else None,
        "learned_from": {
            topic: _learned(connection, topic, since := (parent[topic] or 0) if parent else 0, row[topic] or since)
            for topic in LEARNED
        },
        "evaluations": [each for split, suite in groups for each in scores(connection, split, suite, number)],
    }


def _learned(connection: sqlite3.Connection, topic: str, since: int, to: int) -> Row:
    """Episodes of a topic at the offsets [since, to)."""
    found = connection.execute(
        "SELECT suite, count(*) AS n, sum(outcome = 'success') AS won FROM episodes "
        'WHERE topic = ? AND "offset" >= ? AND "offset" < ? GROUP BY suite',
        (topic, since, to),
    ).fetchall()
    return {
        "from": since,
        "to": to,
        "episodes": sum(each["n"] for each in found),
        "success": sum(each["won"] for each in found),
        "suites": {each["suite"]: each["n"] for each in found},
    }


def devices(connection: sqlite3.Connection) -> Row:
    """Each phone with the worker that drives it. step_ms: of the mean step of an episode, over its last episodes."""
    found = connection.execute(
        "SELECT device, worker, count(*) AS episodes, sum(outcome = 'success') AS won, "
        "sum(outcome IN ('success', 'failure')) AS known, sum(outcome = 'interrupted') AS interrupted, "
        "max(finished_at) AS last_at FROM episodes WHERE topic != 'demonstrations' "
        "GROUP BY device, worker ORDER BY device, worker LIMIT 1000"
    ).fetchall()
    return {"rows": [_device(connection, row) for row in found]}


def _device(connection: sqlite3.Connection, row: sqlite3.Row) -> dict[str, Any]:
    times = [
        each[0]
        for each in connection.execute(
            "SELECT step_ms FROM episodes WHERE device = ? AND worker = ? AND topic != 'demonstrations' "
            "AND step_ms IS NOT NULL ORDER BY finished_at DESC LIMIT ?",
            (row["device"], row["worker"], DEVICE_EPISODES),
        )
    ]
    return {
        **{name: row[name] for name in ("device", "worker", "episodes", "interrupted", "last_at")},
        "success": rate(row["won"], row["known"])["rate"],
        "step_ms": {"median": percentile(times, 0.5), "p95": percentile(times, 0.95)} if times else None,
    }
