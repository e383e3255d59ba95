"""What the index says of a run, for the pages: an open connection in, plain JSON-able values out.

Every statement has its values as parameters. Texts are the records' own, so untrusted.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from distrl.evaluate.curves import unfinished, wilson
from distrl.types import Outcome
from distrl.view.filters import NO_STEPS, EpisodeFilter, Page
from distrl.view.index import DEAD_LETTERS, IN_FORCE

Row = dict[str, Any]

LISTED: Final = (
    "topic", "partition", "offset", "task_id", "suite", "family", "split", "instruction", "outcome", "outcome_source",
    "steps", "version_first", "version_last", "lag", "device", "worker", "started_at", "finished_at", "expert",
    "evaluated", "mode",
)  # fmt: skip
"""Columns of an episode in a list."""
EPISODE: Final = ", ".join(f'"{name}"' for name in LISTED)
DEAD_LETTERED: Final = ("demonstrations", "trajectories")
"""Indexed topics whose bad records go to the dead-letter topic: those that the learner reads. Readers of the others
skip them."""
ATTEMPTS: Final = 500
"""Most attempts of one task that are listed."""
EXAMPLES: Final = 5
OFFERED: Final = 500
"""Most names of one kind that a list offers to be filtered by."""
CLASSES: Final = 50
"""Most conditions that are listed."""
LETTER: Final = (
    "FROM dead_letters GROUP BY coalesce(from_topic, ''), coalesce(from_partition, partition), "
    'coalesce(from_offset, "offset")'
)
"""A record that was dead-lettered twice, as its role crashed in between, is one."""


def episodes(connection: sqlite3.Connection, wanted: EpisodeFilter, page: Page) -> Row:
    """One page of episodes, how many there are, and `upto`, by which the next page is of the same list."""
    upto = wanted.upto
    if upto is None:
        (upto,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM episodes").fetchone()
    (total,) = connection.execute(f"SELECT count(*) FROM episodes WHERE {wanted.where}", wanted.values).fetchone()
    found = connection.execute(
        f"SELECT {EPISODE} FROM episodes WHERE {wanted.where} ORDER BY {wanted.order} LIMIT ? OFFSET ?",
        (*wanted.values, page.limit, page.offset),
    )
    return {"total": total, "upto": upto, "rows": [listed(row) for row in found]}


def listed(row: sqlite3.Row) -> Row:
    return {**{name: row[name] for name in LISTED}, "expert": bool(row["expert"])}


def neighbours(
    connection: sqlite3.Connection, topic: str, partition: int, offset: int
) -> tuple[str | None, str | None]:
    """The places, PARTITION:OFFSET, of the episodes before and after one in its partition."""
    place = (topic, partition, offset)
    before, after = (
        connection.execute(
            f'SELECT {which}("offset") FROM episodes WHERE topic = ? AND partition = ? AND "offset" {comparison} ?',
            place,
        ).fetchone()[0]
        for which, comparison in (("max", "<"), ("min", ">"))
    )
    return (
        None if before is None else f"{partition}:{before}",
        None if after is None else f"{partition}:{after}",
    )


def lag(connection: sqlite3.Connection, topic: str, partition: int, offset: int) -> int | None:
    """That of one episode; None also where it is not in the index yet."""
    row = connection.execute(
        'SELECT lag FROM episodes WHERE topic = ? AND partition = ? AND "offset" = ?', (topic, partition, offset)
    ).fetchone()
    return None if row is None else row[0]


def learned_in(connection: sqlite3.Connection, topic: str, offset: int) -> int | None:
    """The first version whose weights come after the update that first folded a record; None: none yet."""
    if topic not in ("trajectories", "demonstrations"):
        return None
    (found,) = connection.execute(
        f'SELECT min(version) FROM versions WHERE {IN_FORCE} AND "update" >= '
        f"(SELECT min(u) FROM updates WHERE {topic} > ?)",
        [offset],
    ).fetchone()
    return found if found is None else int(found)


def published(connection: sqlite3.Connection) -> list[tuple[int, int]]:
    """(when, number) of every version, by time: what `episode_page.staleness` reads."""
    return [
        (at, version) for at, version in connection.execute("SELECT at, version FROM versions ORDER BY at, version")
    ]


def task_attempts(connection: sqlite3.Connection, task_id: str) -> list[Row]:
    """The first ATTEMPTS episodes of a task, over all topics, oldest first."""
    found = connection.execute(
        f'SELECT {EPISODE} FROM episodes WHERE task_id = ? ORDER BY finished_at, topic, partition, "offset" LIMIT ?',
        (task_id, ATTEMPTS),
    )
    return [listed(row) for row in found]


def counts(connection: sqlite3.Connection) -> Row:
    """How many there are of what a run's row counts; also what a page is told of a change."""
    topics = dict(connection.execute("SELECT topic, sum(episodes) FROM totals GROUP BY topic").fetchall())
    (version,) = connection.execute("SELECT max(version) FROM versions").fetchone()
    (updates,) = connection.execute("SELECT count(*) FROM updates").fetchone()
    (letters,) = connection.execute(f"SELECT count(*) FROM (SELECT 1 {LETTER})").fetchone()
    return {
        "version": version,
        "updates": updates,
        "trajectories": topics.get("trajectories", 0),
        "evaluations": topics.get("evaluations", 0),
        "demonstrations": topics.get("demonstrations", 0),
        "dead_letters": letters,
    }


def run_row(connection: sqlite3.Connection) -> Row:
    """What a run's row says from its log: counts, first and last time, success of the last version whose evaluation has
    ended."""
    first, last = connection.execute("SELECT min(first_at), max(last_at) FROM totals").fetchone()
    scored = [each for each in version_scores(connection) if each["version"] >= 0 and not each["unfinished"]]
    return {
        **counts(connection),
        "first_at": first,
        "last_at": last,
        "success": {name: scored[-1][name] for name in ("version", "rate", "low", "high", "n")} if scored else None,
    }


EMPTY_RUN: Final[Row] = {
    "version": None, "updates": 0, "trajectories": 0, "evaluations": 0, "demonstrations": 0, "dead_letters": 0,
    "first_at": None, "last_at": None, "success": None,
}  # fmt: skip
"""`run_row` of a run without an index."""


def run_details(connection: sqlite3.Connection) -> Row:
    """What the lists may be filtered by, outcomes of the trajectories, and what there is to know of the log."""
    chosen = {
        plural: [
            row[0]
            for row in connection.execute(
                "SELECT name FROM names WHERE kind = ? ORDER BY name LIMIT ?", (kind, OFFERED)
            )
        ]
        for plural, kind in (("suites", "suite"), ("families", "family"), ("devices", "device"), ("workers", "worker"))
    }
    outcomes = connection.execute("SELECT outcome, episodes FROM totals WHERE topic = 'trajectories'")
    unreadable = connection.execute(
        "SELECT topic, sum(unreadable) FROM watermarks GROUP BY 1 HAVING sum(unreadable) > 0"
    )
    notes = [f"{count} records of {topic} cannot be read: {unreadable_hint(topic)}" for topic, count in unreadable]
    return {**chosen, "outcomes": dict(outcomes.fetchall()), "notes": notes, "read_up_to": read_up_to(connection)}


def unreadable_hint(topic: str) -> str:
    if topic in DEAD_LETTERED:
        return "`distrl dlq ls` lists those that the learner has come to, for 30 days"
    return "a newer version of DistRL may be able to, once the indexes in view/ of stack.cache are deleted"


def read_up_to(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """Topic -> partition -> the offset after the last record that is in the index."""
    found: dict[str, dict[str, int]] = {}
    for topic, partition, to in connection.execute("SELECT topic, partition, next FROM watermarks ORDER BY 1, 2"):
        found.setdefault(topic, {})[str(partition)] = to
    return found


def version_scores(connection: sqlite3.Connection) -> list[Row]:
    """`compared_scores` without versions whose updates are void, each with `unfinished`: whether its evaluation goes
    on, as `curves.unfinished` knows."""
    void = {number for (number,) in connection.execute(f"SELECT version FROM versions WHERE NOT ({IN_FORCE})")}
    found = [row for row in compared_scores(connection) if row["version"] not in void]
    task_ids = defaultdict[int, list[str]](list)
    for version, task_id in connection.execute(
        "SELECT DISTINCT evaluated, task_id FROM episodes "
        "WHERE topic = 'evaluations' AND split = ? AND suite = ? AND evaluated >= 0",
        (found[0]["split"], found[0]["suite"]) if found else (None, None),
    ):
        task_ids[version].append(task_id)
    going_on = unfinished(task_ids)
    return [{**row, "unfinished": row["version"] in going_on} for row in found]


def compared_scores(connection: sqlite3.Connection) -> list[Row]:
    """Success by evaluated policy, versions ascending, on one suite and split, as `evaluate.curves.evaluated` compares.

    The split is validation where a version was evaluated on it, else test; the suite is that of most evaluations of the
    lowest version. Prompted agents, which have no version, decide where no version was evaluated.

    The first record of a task counts.
    """
    compared = connection.execute(
        "SELECT split, suite FROM episodes WHERE topic = 'evaluations' "
        "GROUP BY split, suite, evaluated "
        "ORDER BY evaluated < 0, split = 'validation' DESC, split = 'test' DESC, evaluated, count(*) DESC, suite "
        "LIMIT 1"
    ).fetchone()
    return scores(connection, *compared) if compared is not None else []


def scores(connection: sqlite3.Connection, split: str, suite: str, version: int | None = None) -> list[Row]:
    found = connection.execute(
        "SELECT evaluated AS version, evaluated_sha256 AS sha256, sum(outcome = ?) AS won, "
        "sum(outcome IN (?, ?)) AS n, "
        "(SELECT at FROM versions WHERE versions.version = evaluated) AS at FROM "
        "(SELECT evaluated, evaluated_sha256, outcome, min(\"offset\") FROM episodes WHERE topic = 'evaluations' "
        "AND split = ? AND suite = ? AND coalesce(evaluated = ?, 1) GROUP BY evaluated, evaluated_sha256, task_id) "
        "GROUP BY evaluated, evaluated_sha256 ORDER BY evaluated, at",
        (Outcome.SUCCESS.value, Outcome.SUCCESS.value, Outcome.FAILURE.value, split, suite, version),
    )
    return [
        {
            "version": row["version"],
            "at": row["at"],
            "policy": f"version {row['version']}" if row["version"] >= 0 else f"agent {row['sha256'][:12]}",
            "split": split,
            "suite": suite,
            **rate(row["won"], row["n"]),
        }
        for row in found
    ]


def rate(won: int, n: int) -> Row:
    """A share with its 95 % Wilson interval; null without trials."""
    low, high = wilson(won, n)
    return {"rate": won / n if n else None, "low": low if n else None, "high": high if n else None, "n": n}


HAS_CONDITION: Final = (
    "suite = :suite AND family = :family AND EXISTS (SELECT 1 FROM json_each(conditions) WHERE value = :condition)"
)


def failures(connection: sqlite3.Connection, version: int | None) -> Row:
    """How episodes failed: classes by mode, and the conditions that were not met. version: of those where it acted, or
    was evaluated.
    """
    where, given = "outcome = 'failure'", {"version": version}
    if version is not None:
        where += " AND coalesce(evaluated = :version, version_first <= :version AND version_last >= :version)"
    (n,) = connection.execute(f"SELECT count(*) FROM episodes WHERE {where}", given).fetchone()
    modes = connection.execute(
        f"SELECT mode, count(*) FROM episodes WHERE {where} GROUP BY mode ORDER BY 2 DESC, 1", given
    ).fetchall()
    conditions = connection.execute(
        f"SELECT suite, family, each.value, count(*) FROM episodes, json_each(conditions) AS each WHERE {where} "
        f"GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3 LIMIT {CLASSES}",
        given,
    ).fetchall()

    def examples(term: str, **values: str | None) -> list[Row]:
        found = connection.execute(
            f"SELECT {EPISODE} FROM episodes WHERE {where} AND {term} "
            f'ORDER BY finished_at DESC, topic, partition, "offset" LIMIT {EXAMPLES}',
            {**given, **values},
        )
        return [listed(row) for row in found]

    return {
        "n": n,
        "classes": [
            {
                "name": mode or NO_STEPS,
                "count": count,
                "share": count / n,
                "examples": examples("mode IS :mode", mode=mode),
            }
            for mode, count in modes
        ],
        "conditions": [
            {
                "name": condition,
                "suite": suite,
                "family": family,
                "count": count,
                "share": count / n,
                "examples": examples(
                    HAS_CONDITION, suite=suite, family=family, condition=condition
                ),
            }
            for suite, family, condition, count in conditions
        ],
    }  # fmt: skip


DEAD_LETTER: Final = (
    'partition, min("offset") AS "offset", at, reason, from_topic, from_partition, from_offset, bytes, '
    "count(*) AS copies"
)


def dead_letters(connection: sqlite3.Connection, page: Page) -> Row:
    (total,) = connection.execute(f"SELECT count(*) FROM (SELECT 1 {LETTER})").fetchone()
    found = connection.execute(
        f"SELECT {DEAD_LETTER} {LETTER} ORDER BY at DESC, 2 DESC LIMIT ? OFFSET ?", (page.limit, page.offset)
    )
    return {"total": total, "rows": [{"topic": DEAD_LETTERS, **dict(row)} for row in found]}


def dead_letter(connection: sqlite3.Connection, partition: int, offset: int) -> Row | None:
    """The row of the list whose record has a dead letter at that place, which may be a copy; None where none has."""
    row = connection.execute(
        f'SELECT {DEAD_LETTER} {LETTER} HAVING sum(partition = ? AND dead_letters."offset" = ?)', (partition, offset)
    ).fetchone()
    return None if row is None else {"topic": DEAD_LETTERS, **dict(row)}


def column(rows: Iterable[Row], name: str) -> list[Any]:
    return [row[name] for row in rows]


def columns(rows: Sequence[Row], names: Iterable[str]) -> dict[str, list[Any]]:
    """Rows as columns of equal length."""
    return {name: column(rows, name) for name in names}


def parsed(text: str) -> dict[str, float]:
    """The metrics of an update."""
    found: dict[str, float] = json.loads(text)
    return found
