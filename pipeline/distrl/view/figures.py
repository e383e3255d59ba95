"""The learner's figures of each update in the index: from records of figures, else from heartbeats.

A record of figures counts for the update with its time of the journal; one that became void had another. The first of
two counts. A heartbeat names no such time, and counts where the update has no figures.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Final

from distrl.broker.reader import RawRecord
from distrl.types import Figures, Heartbeat, Record

TOPIC: Final = "figures"
HEARTBEATS: Final = "heartbeats"

TABLES: Final = """
CREATE TABLE figures (u INTEGER, at INTEGER, "values" TEXT NOT NULL, PRIMARY KEY (u, at));
CREATE TABLE metrics (u INTEGER PRIMARY KEY, at INTEGER NOT NULL, "values" TEXT NOT NULL);
"""
VALUES: Final = 'coalesce(figures."values", metrics."values")'
"""JSON of an update's figures, or null, of JOINED."""
JOINED: Final = (
    "updates LEFT JOIN figures ON figures.u = updates.u AND figures.at = updates.at "
    "LEFT JOIN metrics ON metrics.u = updates.u"
)
HAS_FIGURES: Final = "EXISTS (SELECT 1 FROM figures JOIN updates USING (u, at) WHERE u = ?1)"

New = Sequence[tuple[RawRecord, Record | None]]


def add(connection: sqlite3.Connection, topic: str, new: New) -> None:
    """Add records of figures, in the order of the log."""
    for each in (record for _, record in new if isinstance(record, Figures)):
        row = (each.u, each.journalled_at, _json(each.metrics))
        connection.execute("INSERT OR IGNORE INTO figures VALUES (?, ?, ?)", row)
        connection.execute(f"DELETE FROM metrics WHERE u = ?1 AND {HAS_FIGURES}", [each.u])


def add_heartbeats(connection: sqlite3.Connection, topic: str, new: New) -> None:
    """Add what the learner's heartbeats say of updates without figures; the newest counts."""
    for beat in (record for _, record in new if isinstance(record, Heartbeat)):
        u = update_of(beat)
        if u is not None:
            row = (u, beat.at, _json(beat.metrics))
            connection.execute(f"INSERT OR REPLACE INTO metrics SELECT ?1, ?2, ?3 WHERE NOT {HAS_FIGURES}", row)


def update_of(beat: Heartbeat) -> int | None:
    """The number of the last update that a learner's heartbeat reports; None where it reports none."""
    updates = beat.metrics.get("update")
    if beat.role != "learner" or updates is None or not 1 <= updates < 2**53:
        return None
    return int(updates) - 1


def _json(metrics: Mapping[str, float]) -> str:
    """JSON of the metrics that are finite, without the number of the update."""
    return json.dumps({name: value for name, value in metrics.items() if name != "update" and math.isfinite(value)})
