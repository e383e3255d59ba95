"""What the index keeps of the draws of updates, and what a page gets of it: for each step of an episode, when it was
drawn and what the learner held of it then.

A row is a trajectory in an update. Of the newest KEPT updates only: an update draws a thousand steps, so that all of
them would outgrow everything else in the index.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

from distrl.broker.reader import RawRecord
from distrl.types import DrawnStep, DrawnTrajectory, Draws, Record

TOPIC: Final = "draws"
KEPT: Final = 2_000
"""Updates whose draws are in the index, some 30 MB of the shipped settings."""
SHOWN: Final = 200
"""Most updates of one episode that a page gets, the newest ones."""
LEARNED: Final = ("trajectories", "demonstrations")
"""Topics that a learner draws from; the index has their places here."""
COLUMNS: Final = ("value", "advantage", "td_error", "ratio", "priority")
STEP: Final = Struct("<II5f")
"""A step's number, how often it was drawn, and the columns; NaN stands for none."""
LARGEST: Final = 2**31
LARGEST_FLOAT: Final = 3e38

TABLE: Final = """
CREATE TABLE draws (topic INTEGER, partition INTEGER, "offset" INTEGER, u INTEGER, at INTEGER NOT NULL,
  steps BLOB NOT NULL, PRIMARY KEY (topic, partition, "offset", u)) WITHOUT ROWID;
CREATE INDEX draws_u ON draws (u);
"""


def add(connection: sqlite3.Connection, topic: str, new: Sequence[tuple[RawRecord, Record | None]]) -> None:
    """Add records, in the order of the log: of two of one update, the later one counts."""
    for each in (record for _, record in new if isinstance(record, Draws)):
        rows = [
            (LEARNED.index(of.topic), of.partition, of.offset, each.u, each.journalled_at, _packed(of))
            for of in each.trajectories
            if of.topic in LEARNED
        ]
        connection.executemany("INSERT OR REPLACE INTO draws VALUES (?, ?, ?, ?, ?, ?)", rows)
    connection.execute("DELETE FROM draws WHERE u <= (SELECT max(u) FROM updates) - ?", [KEPT])


def draws_of(connection: sqlite3.Connection, topic: str, partition: int, offset: int) -> dict[str, Any] | None:
    """When an episode was drawn, JSON-able; None for one that no learner draws.

    recorded: whether the index has draws of this run at all. updates: how many drew it. shown: how many of them, the
    newest ones, are in `steps`: number of a step -> `u`, `times` and its columns, newest update first.
    """
    if topic not in LEARNED:
        return None
    # A void update had another time than the one that has its number now.
    mine = (
        "FROM draws JOIN updates ON updates.u = draws.u AND updates.at = draws.at "
        'WHERE topic = ? AND partition = ? AND "offset" = ?'
    )
    place = (LEARNED.index(topic), partition, offset)
    (recorded,) = connection.execute("SELECT EXISTS (SELECT 1 FROM draws)").fetchone()
    (updates,) = connection.execute(f"SELECT count(*) {mine}", place).fetchone()
    steps: dict[int, dict[str, list[Any]]] = {}
    for u, packed in connection.execute(f"SELECT draws.u, steps {mine} ORDER BY draws.u DESC LIMIT {SHOWN}", place):
        for number, times, *numbers in STEP.iter_unpack(packed):
            columns = steps.setdefault(number, {name: [] for name in ("u", "times", *COLUMNS)})
            cells = (float(f"{each:.6g}") if math.isfinite(each) else None for each in numbers)
            for name, cell in zip(columns, (u, times, *cells), strict=True):
                columns[name].append(cell)
    return {"recorded": bool(recorded), "updates": updates, "shown": min(updates, SHOWN), "steps": steps}


def of_step(drawn: dict[str, Any] | None, number: int) -> dict[str, Any]:
    """What a page gets of a step: the newest number of each column, and `drawn` with all of them; null for none."""
    columns = drawn["steps"].get(number) if drawn is not None else None
    newest = {
        name: next((each for each in columns[name] if each is not None), None) if columns else None for name in COLUMNS
    }
    return {**newest, "drawn": columns}


def _packed(of: DrawnTrajectory) -> bytes:
    return b"".join(
        STEP.pack(each.step, each.times, *_cells(each))
        for each in of.steps
        if 0 <= each.step < LARGEST and 0 < each.times < LARGEST
    )


def _cells(step: DrawnStep) -> Sequence[float]:
    numbers = (getattr(step, name) for name in COLUMNS)
    return [math.nan if each is None or not abs(each) < LARGEST_FLOAT else each for each in numbers]
