"""The index of one run: an SQLite file of what the pages list, count and sort.

Only a cache of the log, so it may be deleted at any time; a file that is corrupt, of another schema or of another log
is made again. A transaction holds the rows of a batch together with how far the log is read, so a kill between two
batches costs nothing, and two processes may extend one file: what the other has added already is left out.

*Watermark*: the offset of a partition before which all records are in the index. The record before it is kept as its
digest and read once more by whoever extends the file: where the log has another one there, a broker has lost its tail
and grown a new one, and the index is made again.

A lock file beside it is held by who deletes the index, and by who opens it to write, until it is checked and made: else
two of them could delete each other's, and one go on in a file that has no name any more, which no page reads.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

from filelock import FileLock

from distrl.broker.dead_letter_log import DeadLetterSummary
from distrl.broker.reader import RawRecord
from distrl.broker.snapshots import digest
from distrl.broker.topics import TOPICS
from distrl.errors import StoreError
from distrl.types import Evaluation, Record, Trajectory, Update, Version
from distrl.view import drawn, figures
from distrl.view.rows import (
    NAME_CHARACTERS,
    TEXT_CHARACTERS,
    EpisodeRow,
    episode_row,
    first_uses,
    shortened,
)

ROWS_VERSION: Final = 3
"""Raise it with every change of what a row holds: indexes are made again, as they are where the tables change."""

EPISODE_COLUMNS: Final = tuple(each.name for each in fields(EpisodeRow))
NAMED: Final = ("suite", "family", "device", "worker")
"""Columns whose values a list may be filtered by, and which are offered."""
SCHEMA: Final = f"""
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE watermarks (topic TEXT, partition INTEGER, next INTEGER NOT NULL, unreadable INTEGER NOT NULL DEFAULT 0,
  sha256 TEXT, PRIMARY KEY (topic, partition)) WITHOUT ROWID;
CREATE TABLE episodes ({", ".join(f'"{name}"' for name in EPISODE_COLUMNS)});
CREATE UNIQUE INDEX episodes_place ON episodes (topic, partition, "offset");
CREATE INDEX episodes_task ON episodes (task_id);
CREATE INDEX episodes_finished ON episodes (finished_at);
CREATE INDEX episodes_topic ON episodes (topic, finished_at);
CREATE INDEX episodes_device ON episodes (device, worker, finished_at, topic, outcome, step_ms);
CREATE INDEX episodes_failed ON episodes (mode, finished_at) WHERE outcome = 'failure';
CREATE INDEX episodes_evaluated ON episodes (evaluated) WHERE evaluated IS NOT NULL;
CREATE TABLE totals (topic TEXT, outcome TEXT, episodes INTEGER NOT NULL, first_at INTEGER NOT NULL,
  last_at INTEGER NOT NULL, PRIMARY KEY (topic, outcome)) WITHOUT ROWID;
CREATE TABLE names (kind TEXT, name TEXT, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE uses (worker TEXT, version INTEGER, at INTEGER NOT NULL, PRIMARY KEY (worker, version)) WITHOUT ROWID;
CREATE INDEX episodes_worker ON episodes (worker, topic, finished_at, started_at);
CREATE TABLE versions (version INTEGER PRIMARY KEY, parent INTEGER, at INTEGER NOT NULL, sha256 TEXT NOT NULL,
  size INTEGER NOT NULL, "update" INTEGER NOT NULL, base_model_sha256 TEXT NOT NULL, fingerprint TEXT NOT NULL);
CREATE INDEX versions_at ON versions (at);
CREATE TABLE voids (u INTEGER, version INTEGER, PRIMARY KEY (u, version)) WITHOUT ROWID;
CREATE TABLE superseded (version INTEGER PRIMARY KEY);
CREATE TABLE updates (u INTEGER PRIMARY KEY, at INTEGER NOT NULL, trajectories INTEGER NOT NULL,
  demonstrations INTEGER NOT NULL, version INTEGER NOT NULL);
CREATE TABLE dead_letters (partition INTEGER, "offset" INTEGER, at INTEGER NOT NULL, reason TEXT NOT NULL,
  from_topic TEXT, from_partition INTEGER, from_offset INTEGER, bytes INTEGER NOT NULL,
  PRIMARY KEY (partition, "offset")) WITHOUT ROWID;
{figures.TABLES}{drawn.TABLE}"""

LAG: Final = """
UPDATE episodes SET lag = max(0, version_first, (
  SELECT version FROM versions WHERE at <= episodes.finished_at ORDER BY at DESC, version DESC LIMIT 1
)) - version_first WHERE version_first >= 0 AND
"""
"""The newest version at an episode's end follows from the records alone, whichever topic is read first."""


IN_FORCE: Final = """
NOT EXISTS (SELECT 1 FROM voids WHERE voids.u <= versions."update" AND versions.version <= voids.version)
AND NOT EXISTS (SELECT 1 FROM updates WHERE updates.u = versions."update" AND versions.version <= updates.version)
AND versions.version NOT IN (SELECT version FROM superseded)
"""
"""Of a row of versions: its updates count (`broker.journal.in_force`)."""


PASSING: Final = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
}
"""Errors that say nothing against the file."""


class StaleIndexError(Exception):
    """The file was deleted, made again or corrupted, or ends before what is to be added: open it again."""


class OtherLogError(StaleIndexError):
    """The broker has lost records that are in the index."""


class CorruptIndexError(StaleIndexError):
    """The file is damaged: delete it, and its follower makes it again."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one topic, in the order of the log."""

    topic: str
    """A key of TOPICS."""
    since: Mapping[int, int]
    """Partition -> where it was begun to read; it may lie before the watermark."""
    to: Mapping[int, int]
    """Partition -> the offset after the last record read."""
    records: Sequence[tuple[RawRecord, Record | None]]
    """None: it cannot be decoded, or its topic has no schema."""


class IndexWriter:
    """Extends the file. Of one thread. identity: topic -> id at the broker, which changes where it is made again.

    Raises StoreError where the file cannot be made.
    """

    def __init__(self, path: Path, identity: Mapping[str, str]) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _lock(path):
                self._connection = _opened(path, identity)
                self._inode = path.stat().st_ino
                os.utime(path)  # its last use, by which `follow.forget_unused` goes
        except (OSError, sqlite3.Error) as error:
            raise StoreError(
                str(path), f"the index cannot be made ({error})", "set stack.cache to a folder of yours with free space"
            ) from error

    def close(self) -> None:
        self._connection.close()

    def watermarks(self, topic: str) -> dict[int, int]:
        """Partition -> watermark. Raises StaleIndexError."""
        with self._explained():
            return _watermarks(self._connection, topic)

    def known(self, topic: str) -> dict[int, int]:
        """Partition -> offset of the record before the watermark, where it was read: to be read once more, so that
        `add` can compare it. Raises StaleIndexError."""
        with self._explained():
            found = self._connection.execute(
                "SELECT partition, next - 1 FROM watermarks WHERE topic = ? AND sha256 IS NOT NULL", [topic]
            )
            return dict(found.fetchall())

    def add(self, batch: Batch) -> None:
        """Add what is not there yet, in one transaction. Raises StaleIndexError; OtherLogError where the file was of
        another log, and deletes it."""
        with self._explained():
            self.refuse_replaced()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._add(batch)
                self._connection.execute("COMMIT")
            except BaseException as error:
                self._connection.execute("ROLLBACK")
                if isinstance(error, OtherLogError):
                    delete(self._path)
                raise

    def _add(self, batch: Batch) -> None:
        there = _watermarks(self._connection, batch.topic)
        for partition, since in batch.since.items():
            if there.get(partition, since) < since:
                raise StaleIndexError(f"{batch.topic}[{partition}] is indexed up to {there[partition]}, not {since}")
        self._refuse_other_records(batch)
        new = [
            (raw, record)
            for raw, record in batch.records
            if raw.position.offset >= there.get(raw.position.partition, 0)
        ]
        _ADD.get(batch.topic, _add_episodes)(self._connection, batch.topic, new)
        unreadable = [
            raw.position.partition for raw, record in new if record is None and batch.topic not in BEST_EFFORT
        ]
        last = {raw.position.partition: digest(raw) for raw in _before(batch.to, batch)}
        self._connection.executemany(
            "INSERT INTO watermarks VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
            "next = max(next, excluded.next), sha256 = iif(excluded.next > next, excluded.sha256, sha256), "
            "unreadable = unreadable + excluded.unreadable",
            [(batch.topic, p, to, unreadable.count(p), last.get(p)) for p, to in batch.to.items()],
        )

    def _refuse_other_records(self, batch: Batch) -> None:
        """Raises OtherLogError where the batch has another record before a watermark than was read there, or none: a
        topic that is compacted may have none."""
        rows = self._connection.execute(
            "SELECT partition, next, sha256 FROM watermarks WHERE topic = ? AND sha256 IS NOT NULL", [batch.topic]
        )
        known = {
            partition: (marked, sha256)
            for partition, marked, sha256 in rows
            if batch.since.get(partition, marked) < marked <= batch.to.get(partition, -1)
        }
        for raw in _before({partition: marked for partition, (marked, _) in known.items()}, batch):
            marked, sha256 = known.pop(raw.position.partition)
            if digest(raw) != sha256:
                raise OtherLogError(f"{batch.topic}[{raw.position.partition}] has another record {marked - 1} now")
        if known and TOPICS[batch.topic].cleanup != "compact":
            raise OtherLogError(f"{batch.topic} has no record before {known} any more")

    def refuse_replaced(self) -> None:
        """Raises StaleIndexError where the file is not the one that was opened: somebody deleted it."""
        try:
            inode = self._path.stat().st_ino
        except FileNotFoundError:
            inode = -1
        if inode != self._inode:
            raise StaleIndexError(f"{self._path} was deleted")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(
                str(self._path), f"the index cannot be extended ({error})", "free disk space, or set stack.cache"
            ) from error
        except sqlite3.DatabaseError as error:
            delete(self._path)
            raise StaleIndexError(f"{self._path} is corrupt: {error}") from error


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads the file as it is now.

    Raises StaleIndexError where it is not there yet, CorruptIndexError where it is damaged.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA query_only = ON")
            yield connection
    except sqlite3.OperationalError as error:
        raise StaleIndexError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise CorruptIndexError(f"{path}: {error}") from error


def copied(source: sqlite3.Connection, path: Path) -> None:
    """Write what `source` reads as a file of its own. Raises StoreError."""
    try:
        with closing(sqlite3.connect(path)) as copy:
            source.backup(copy)
    except sqlite3.OperationalError as error:
        raise StoreError(
            str(path), f"the index cannot be copied ({error})", "free disk space, or set TMPDIR to a folder with some"
        ) from error


def schema_id() -> str:
    return f"{ROWS_VERSION}-{hashlib.sha256(SCHEMA.encode()).hexdigest()[:16]}"


def delete(path: Path) -> None:
    if path.parent.exists():  # else there is no place for a lock either
        with _lock(path) as lock:
            _unlink(path)
            Path(lock.lock_file).unlink(missing_ok=True)  # the last act, and who waits for it makes another


def _lock(path: Path) -> FileLock:
    """Without filelock's fallback for file systems without locks: that lock would outlive a killed holder."""
    return FileLock(path.with_name(path.name + ".lock"), fallback_to_soft=False)


def _unlink(path: Path) -> None:
    for each in (path, *(path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))):
        each.unlink(missing_ok=True)


def _opened(path: Path, identity: Mapping[str, str]) -> sqlite3.Connection:
    """A connection to the file, which is made anew unless it is an index of this schema and of this log. Its lock is
    held."""
    connection = _connected(path)
    try:
        known = _known(connection)
        if known is not None and all(known.get(name, each) == each for name, each in identity.items()):
            if known != known | dict(identity):
                _remember(connection, known | dict(identity))
            return connection
    except BaseException:  # a full disk, or another server that writes: the index is sound
        connection.close()
        raise
    connection.close()
    _unlink(path)
    connection = _connected(path)
    connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} INSERT INTO meta VALUES ('schema', '{schema_id()}'); COMMIT;")
    _remember(connection, identity)
    return connection


def _known(connection: sqlite3.Connection) -> dict[str, str] | None:
    """The topics that the index is of; None for no index, a corrupt one and one of another schema. Raises
    sqlite3.OperationalError where the file cannot be read now."""
    try:
        there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
        found = dict(connection.execute("SELECT name, value FROM meta")) if there else {}
        known = json.loads(found["topics"])
        return dict(known) if found["schema"] == schema_id() else None
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in PASSING:
            raise
        return None
    except (sqlite3.DatabaseError, KeyError, ValueError, TypeError, AttributeError):
        return None


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
    except sqlite3.OperationalError:
        connection.close()
        raise
    except sqlite3.DatabaseError:  # the file is no database
        connection.close()
        _unlink(path)
        return _connected(path)
    return connection


def _remember(connection: sqlite3.Connection, topics: Mapping[str, str]) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('topics', ?)", [json.dumps(dict(topics))])


def _watermarks(connection: sqlite3.Connection, topic: str) -> dict[int, int]:
    return dict(connection.execute("SELECT partition, next FROM watermarks WHERE topic = ?", [topic]).fetchall())


def _before(offsets: Mapping[int, int], batch: Batch) -> Iterator[RawRecord]:
    """The records of the batch that stand right before these offsets by partition."""
    return (raw for raw, _ in batch.records if offsets.get(raw.position.partition) == raw.position.offset + 1)


New = Sequence[tuple[RawRecord, Record | None]]
DEAD_LETTERS: Final = "trajectories.dlq"
LARGEST: Final = 2**63 - 1
"""What a column holds; a header may name any number."""
BEST_EFFORT: Final = (DEAD_LETTERS, figures.HEARTBEATS, drawn.TOPIC)
"""Topics whose records are not all decoded, or may be lost."""


def _add_episodes(connection: sqlite3.Connection, topic: str, new: New) -> None:
    rows = [
        episode_row(topic, raw.position, record) for raw, record in new if isinstance(record, Trajectory | Evaluation)
    ]
    marks = ", ".join("?" * len(EPISODE_COLUMNS))
    connection.executemany(f"INSERT INTO episodes VALUES ({marks})", map(astuple, rows))
    connection.executemany(
        "INSERT INTO totals VALUES (?1, ?2, 1, ?3, ?4) ON CONFLICT DO UPDATE SET episodes = episodes + 1, "
        "first_at = min(first_at, ?3), last_at = max(last_at, ?4)",
        [(row.topic, row.outcome, row.started_at, row.finished_at) for row in rows],
    )
    connection.executemany(
        "INSERT INTO uses VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET at = min(at, ?3)",
        [
            use
            for _, record in new
            if isinstance(record, Trajectory) and not record.is_expert
            for use in first_uses(record)
        ],
    )
    names = {(kind, str(getattr(row, kind))) for row in rows for kind in NAMED}
    connection.executemany("INSERT OR IGNORE INTO names VALUES (?, ?)", sorted(names))
    for row in rows:
        place = (row.topic, row.partition, row.offset)
        connection.execute(f'{LAG} topic = ? AND partition = ? AND "offset" = ?', place)


def _add_versions(connection: sqlite3.Connection, topic: str, new: New) -> None:
    found = [record for _, record in new if isinstance(record, Version)]
    connection.executemany(
        "INSERT OR IGNORE INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                each.version,
                each.parent,
                each.published_at,
                each.adapter.sha256,
                each.adapter.size,
                each.update,
                each.base_model_sha256,
                each.config_fingerprint,
            )
            for each in found
        ],
    )
    replaced = [(number,) for each in found for number in each.supersedes]
    connection.executemany("INSERT OR IGNORE INTO superseded VALUES (?)", replaced)
    if found:
        connection.execute(f"{LAG} finished_at >= ?", [min(each.published_at for each in found)])


def _add_updates(connection: sqlite3.Connection, topic: str, new: New) -> None:
    """As `broker.journal.History`: a line makes those from its number on void, and one after a gap is ignored."""
    for update in (record for _, record in new if isinstance(record, Update)):
        if update.void:
            connection.execute("INSERT OR IGNORE INTO voids VALUES (?, ?)", (update.u, update.version))
        (count,) = connection.execute("SELECT count(*) FROM updates").fetchone()
        if update.u > count:
            continue
        connection.execute("DELETE FROM updates WHERE u >= ?", [update.u])
        if not update.void:
            folded = (_folded(update, name) for name in ("trajectories", "demonstrations"))
            row = (update.u, update.journalled_at, *folded, update.version)
            connection.execute("INSERT INTO updates VALUES (?, ?, ?, ?, ?)", row)


def _folded(update: Update, topic: str) -> int:
    """Records of the topic, by its short name, that an update and those before it have folded."""
    return sum(mark.offset for mark in update.watermarks if mark.topic.rpartition(".")[2] == topic)


def _add_dead_letters(connection: sqlite3.Connection, topic: str, new: New) -> None:
    for raw, _ in new:
        found = DeadLetterSummary.of(raw)
        origin = found.origin
        reason = shortened(f"{shortened(found.reason, NAME_CHARACTERS)}: {found.error}", TEXT_CHARACTERS)
        named = origin is not None and max(abs(origin.partition), abs(origin.offset)) <= LARGEST
        came = (origin.topic[:NAME_CHARACTERS], origin.partition, origin.offset) if origin and named else (None,) * 3
        row = (raw.position.partition, raw.position.offset, found.timestamp, reason, *came, found.size)
        connection.execute("INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


_ADD: Final = {
    "versions": _add_versions,
    "updates": _add_updates,
    figures.HEARTBEATS: figures.add_heartbeats,
    figures.TOPIC: figures.add,
    DEAD_LETTERS: _add_dead_letters,
    drawn.TOPIC: drawn.add,
}
