"""The index file: what is in it follows from the log alone, whatever happens to the file or to its writer."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import factories
import pytest
from distrl.broker.journal import History, in_force
from distrl.broker.reader import RawRecord
from distrl.broker.topics import DAY_MS
from distrl.broker.topics import TOPICS as KEPT_IN
from distrl.errors import StoreError
from distrl.evaluate import policies as success_by_policy
from distrl.evaluate.curves import evaluated, reload_seconds, score
from distrl.learner import reading as reading_of_learner
from distrl.telemetry.view import RunView
from distrl.types import (
    Evaluation,
    LoggedTrajectory,
    LogPosition,
    Outcome,
    Record,
    Split,
    Trajectory,
    Update,
    Watermark,
)
from distrl.view import index, queries
from distrl.view import series as charts
from distrl.view.filters import EpisodeFilter, Page
from distrl.view.follow import INDEXED
from distrl.view.index import (
    BEST_EFFORT,
    DEAD_LETTERS,
    IN_FORCE,
    Batch,
    CorruptIndexError,
    IndexWriter,
    OtherLogError,
    StaleIndexError,
    delete,
    reading,
)
from filelock import FileLock, Timeout
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

TOPICS = {"trajectories": "id-1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "view" / "run.sqlite"


def played(number: int) -> Trajectory:
    step = factories.step(version=number // 10)
    return factories.trajectory(f"task-{number}", (step,), started_at=number, finished_at=number + 1)


def batch(
    records: Sequence[Record | None], since: int = 0, topic: str = "trajectories", values: Sequence[bytes] = ()
) -> Batch:
    """Records one after the other from offset `since` on. values: their bytes; all the same if not given."""
    bytes_of = dict(enumerate(values))
    raws = [RawRecord(LogPosition(topic, 0, since + n), b"", bytes_of.get(n, b""), 0) for n in range(len(records))]
    return Batch(topic, {0: since}, {0: since + len(records)}, list(zip(raws, records, strict=True)))


def offsets(path: Path) -> list[int]:
    with reading(path) as connection:
        return [row[0] for row in connection.execute('SELECT "offset" FROM episodes ORDER BY "offset"')]


def filled(path: Path, count: int) -> None:
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch([played(n) for n in range(count)]))


def test_it_goes_on_where_it_was(path: Path) -> None:
    filled(path, 3)
    with closing(IndexWriter(path, TOPICS)) as index:
        assert index.watermarks("trajectories") == {0: 3}
        index.add(batch([played(3)], since=3))
    assert offsets(path) == [0, 1, 2, 3]


def test_two_writers_add_each_record_once(path: Path) -> None:
    with closing(IndexWriter(path, TOPICS)) as one, closing(IndexWriter(path, TOPICS)) as other:
        one.add(batch([played(n) for n in range(4)]))
        other.add(batch([played(n) for n in range(6)]))
        one.add(batch([played(4)], since=4))
        assert one.watermarks("trajectories") == {0: 6}
    with reading(path) as connection:
        assert connection.execute("SELECT count(*), count(DISTINCT rowid) FROM episodes").fetchone()[:] == (6, 6)


def test_a_batch_that_leaves_a_gap_is_refused(path: Path) -> None:
    filled(path, 3)
    with closing(IndexWriter(path, TOPICS)) as index:
        with pytest.raises(StaleIndexError):
            index.add(batch([played(9)], since=9))
        assert index.watermarks("trajectories") == {0: 3}
    assert offsets(path) == [0, 1, 2]


@pytest.mark.parametrize("grown", [[b"two", b"three"], [b"another", b"three"]])
def test_a_log_that_has_another_record_where_the_last_was_read_begins_a_new_index(
    path: Path, grown: list[bytes]
) -> None:
    """A broker lost its tail and has grown a new one while nobody looked."""
    first = batch([played(n) for n in range(3)], values=[b"zero", b"one", b"two"])
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(first)
        assert index.known("trajectories") == {0: 2}
        again = batch([played(2), played(3)], since=2, values=grown)
        if grown[0] == b"two":
            index.add(again)
            assert index.known("trajectories") == {0: 3}
            return
        with pytest.raises(OtherLogError, match="has another record 2 now"):
            index.add(again)
    assert not path.exists()


@pytest.mark.parametrize(("topic", "refused"), [("trajectories", True), ("versions", False)])
def test_a_record_that_is_gone_is_a_loss_unless_the_topic_is_compacted(path: Path, topic: str, refused: bool) -> None:
    made = {"trajectories": played, "versions": lambda n: factories.version(number=n)}[topic]
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch([made(0), made(1)], topic=topic))
        later = batch([made(2)], since=2, topic=topic)
        without = Batch(topic, {0: 1}, later.to, later.records)
        if refused:
            with pytest.raises(OtherLogError):
                index.add(without)
        else:
            index.add(without)
            assert index.watermarks(topic) == {0: 3}


def test_records_that_retention_deleted_before_they_were_read_are_no_loss(path: Path) -> None:
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch([played(0), played(1)]))
        index.add(Batch("trajectories", {0: 2}, {0: 7}, ()))
        assert (index.watermarks("trajectories"), index.known("trajectories")) == ({0: 7}, {})
        index.add(batch([played(7)], since=7))
    assert offsets(path) == [0, 1, 7]


def add_and_die(path: Path) -> None:
    """Adds a batch, and is killed within the transaction of the second, when its rows are written already."""
    index = IndexWriter(path, TOPICS)
    index.add(batch([played(n) for n in range(3)]))

    second = batch([played(3), played(4)], since=3)

    class Deadly(dict[int, int]):
        """Asked for its items once the rows are written, for the watermarks."""

        def items(self) -> Any:
            os.kill(os.getpid(), signal.SIGKILL)

    index.add(Batch(second.topic, second.since, Deadly(second.to), second.records))


def test_a_kill_between_rows_and_watermark_leaves_neither(path: Path) -> None:
    child = multiprocessing.get_context("spawn").Process(target=add_and_die, args=(path,))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert offsets(path) == [0, 1, 2]
    with closing(IndexWriter(path, TOPICS)) as index:
        assert index.watermarks("trajectories") == {0: 3}
        index.add(batch([played(3), played(4)], since=3))
    assert offsets(path) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("garbage", [b"", b"no database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_index_is_made_again(path: Path, garbage: bytes) -> None:
    filled(path, 3)
    delete(path)
    path.write_bytes(garbage)
    filled(path, 2)
    assert offsets(path) == [0, 1]


def test_a_page_that_was_spoilt_is_found_when_it_is_read(path: Path) -> None:
    filled(path, 400)
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (path.stat().st_size - 4096))
    with pytest.raises(CorruptIndexError):
        offsets(path)
    with closing(IndexWriter(path, TOPICS)) as index:
        assert index.watermarks("trajectories") == {}
        index.add(batch([played(0), played(1)]))
    assert offsets(path) == [0, 1]


@pytest.mark.parametrize("found", [{"trajectories": "id-2"}, {"trajectories": "id-1", "versions": "another"}])
def test_a_topic_that_was_made_again_begins_a_new_index(path: Path, found: dict[str, str]) -> None:
    with closing(IndexWriter(path, {**TOPICS, "versions": "id-1"})) as index:
        index.add(batch([played(0)]))
    with closing(IndexWriter(path, found)) as index:
        assert index.watermarks("trajectories") == {}


def test_another_schema_begins_a_new_index(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, 3)
    monkeypatch.setattr("distrl.view.index.ROWS_VERSION", 10_000)
    filled(path, 1)
    assert offsets(path) == [0]


def test_a_file_that_somebody_deleted_is_noticed(path: Path) -> None:
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch([played(0)]))
        delete(path)
        with pytest.raises(StaleIndexError):
            index.add(batch([played(1)], since=1))
        with pytest.raises(StaleIndexError):
            offsets(path)


class OtherServer:
    """Another one, in a thread, that stops at a certain place of its work, which calls `at_place` there, until this one
    calls `goes_on` or has to wait for a lock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, work: Callable[[], None]) -> None:
        self._there, self._free = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=work)
        free = self._free

        class Watched(FileLock):
            """Sets `free` when it has to be waited for."""

            def acquire(self, *given: Any, **named: Any) -> Any:
                try:
                    return super().acquire(timeout=0)
                except Timeout:
                    free.set()
                    return super().acquire(*given, **named)

        monkeypatch.setattr(index, "FileLock", Watched, raising=False)

    def is_here(self) -> bool:
        return threading.current_thread() is self._thread

    def at_place(self) -> None:
        """Stops the other server there, and no other thread."""
        if self.is_here():
            self._there.set()
            assert self._free.wait(60)

    def comes(self) -> None:
        self._thread.start()
        until(self._there.is_set, "the other server is at its place")

    def goes_on(self) -> None:
        self._free.set()
        self._thread.join(60)

    def is_met(self, path: Path, topics: Mapping[str, str]) -> None:
        """An index that is opened while the other server is at its place is the one that pages read."""
        self.comes()
        with closing(IndexWriter(path, topics)) as own:
            self.goes_on()
            own.add(batch([played(0)]))
            assert offsets(path) == [0]


def test_two_servers_that_find_an_outdated_index_at_once_extend_one_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has judged the file when the other makes it again, and would delete what that one has opened."""
    filled(path, 3)
    again = {"trajectories": "id-2"}
    other = OtherServer(monkeypatch, lambda: IndexWriter(path, again).close())
    known, remember = index._known, index._remember

    def judged(connection: sqlite3.Connection) -> dict[str, str] | None:
        found = known(connection)
        other.at_place()
        return found

    def made(connection: sqlite3.Connection, topics: Mapping[str, str]) -> None:
        remember(connection, topics)
        if not other.is_here():
            other.goes_on()

    monkeypatch.setattr(index, "_known", judged)
    monkeypatch.setattr(index, "_remember", made)
    other.is_met(path, again)


def test_an_index_that_is_opened_while_it_is_deleted_is_the_one_that_pages_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is gone when it is opened, and those beside it would go afterwards."""
    filled(path, 3)
    other = OtherServer(monkeypatch, lambda: delete(path))
    unlink = Path.unlink

    def unlinked(each: Path, missing_ok: bool = False) -> None:
        unlink(each, missing_ok)
        if each == path:
            other.at_place()

    monkeypatch.setattr(Path, "unlink", unlinked)
    other.is_met(path, TOPICS)


def test_an_index_that_is_deleted_leaves_nothing(path: Path) -> None:
    filled(path, 3)
    delete(path)
    assert list(path.parent.iterdir()) == []
    delete(path)
    delete(path.parent / "not there" / path.name)
    assert list(path.parent.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "view").write_text("a file")
    with pytest.raises(StoreError, match=r"stack\.cache"):
        IndexWriter(tmp_path / "view" / "run.sqlite", TOPICS)


def test_a_record_that_cannot_be_read_is_counted_and_noted(path: Path) -> None:
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch([played(0), None, played(2)]))
    assert offsets(path) == [0, 2]
    with reading(path) as connection:
        assert queries.run_details(connection)["notes"] == [
            "1 records of trajectories cannot be read: `distrl dlq ls` lists those that the learner has come to, for "
            "30 days"
        ]


def test_dead_letters_are_promised_of_the_topics_that_have_some_for_as_long_as_they_have(path: Path) -> None:
    topics = [each for each in INDEXED if each not in BEST_EFFORT]
    with closing(IndexWriter(path, TOPICS)) as index:
        for topic in topics:
            index.add(batch([None], topic=topic))
    with reading(path) as connection:
        notes = queries.run_details(connection)["notes"]
    promised = {topic for topic in topics for note in notes if f" {topic} " in note and "dlq ls" in note}
    assert len(notes) == len(topics)
    assert promised == set(reading_of_learner.TOPICS)
    assert KEPT_IN[DEAD_LETTERS].retention_ms == 30 * DAY_MS


def test_the_lag_is_the_same_whichever_topic_comes_first(path: Path, tmp_path: Path) -> None:
    versions = [factories.version(number, published_at=20 * number) for number in range(4)]
    trajectories = [played(n) for n in range(40)]
    found = []
    for name, order in (("a", (0, 1)), ("b", (1, 0))):
        parts = [batch(versions, topic="versions"), batch(trajectories)]
        with closing(IndexWriter(tmp_path / name, TOPICS)) as index:
            for part in order:
                index.add(parts[part])
        with reading(tmp_path / name) as connection:
            found.append([tuple(row) for row in connection.execute('SELECT lag FROM episodes ORDER BY "offset"')])
    assert found[0] == found[1]
    assert found[0][0] == (0,)
    assert found[0][19] == (0,)  # ended as version 1 came, of version 1
    assert found[0][39] == (0,)


@given(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=30))
def test_the_updates_are_those_that_the_journal_counts(lines: list[tuple[int, bool]]) -> None:
    journal = [
        Update(u, (Watermark("distrl.r.trajectories", 0, place),), "f", place, void="lost" if void else "")
        for place, (u, void) in enumerate(lines)
    ]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        with closing(IndexWriter(path, TOPICS)) as index:
            index.add(batch(journal[:7], topic="updates"))
            index.add(batch(journal[7:], since=min(7, len(journal)), topic="updates"))
        with reading(path) as connection:
            found = [tuple(row) for row in connection.execute("SELECT u, at FROM updates ORDER BY u")]
    assert found == [(each.u, each.journalled_at) for each in History.of(journal).updates]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(-1, 6)), max_size=12),
    st.lists(st.tuples(st.integers(0, 4), st.frozensets(st.integers(0, 6), max_size=2)), max_size=7),
    st.booleans(),
)
def test_versions_whose_updates_became_void_or_were_superseded_count_for_nothing(
    lines: list[tuple[int, bool, int]], made: list[tuple[int, frozenset[int]]], updates_first: bool
) -> None:
    journal = [
        Update(u, (), "f", place, version=version, void="lost" if void else "")
        for place, (u, void, version) in enumerate(lines)
    ]
    versions = [
        factories.version(number, update=u, supersedes=tuple(sorted(others))) for number, (u, others) in enumerate(made)
    ]
    parts = [batch(versions, topic="versions"), batch(journal, topic="updates")]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        with closing(IndexWriter(path, TOPICS)) as index:
            for part in parts[::-1] if updates_first else parts:
                index.add(part)
        with reading(path) as connection:
            found = [row[0] for row in connection.execute(f"SELECT version FROM versions WHERE {IN_FORCE}")]
    assert found == [each.version for each in in_force(versions, History.of(journal))]


def test_an_episode_was_learned_in_the_version_that_counts(path: Path) -> None:
    """Of two versions of one update the first was made before the journal went back."""
    journal = [
        *(Update(u, (Watermark("distrl.r.trajectories", 0, 10 * (u + 1)),), "f", u, version=u - 1) for u in range(3)),
        Update(1, (Watermark("distrl.r.trajectories", 0, 10),), "f", 3, version=2, void="lost"),
        Update(1, (Watermark("distrl.r.trajectories", 0, 25),), "f", 4, version=2),
    ]
    versions = [factories.version(number, update=u) for number, u in enumerate((0, 1, 2, 1))]
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch(journal, topic="updates"))
        index.add(batch(versions, topic="versions"))
    with reading(path) as connection:
        assert [queries.learned_in(connection, "trajectories", offset) for offset in (5, 15, 30)] == [0, 3, None]
        assert charts.version(connection, 1)["learned_from"]["trajectories"]["episodes"] == 0
        assert [charts.version(connection, n)["learned_from"]["trajectories"]["to"] for n in (0, 3)] == [10, 25]


def test_an_index_that_cannot_be_written_now_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, 3)

    def full(connection: sqlite3.Connection, topics: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("distrl.view.index._remember", full)
        with pytest.raises(StoreError, match="disk is full"):
            IndexWriter(path, {**TOPICS, "versions": "new"})
    assert offsets(path) == [0, 1, 2]


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 300), st.lists(st.integers(0, 4), min_size=1, max_size=4)),
        max_size=12,
    )
)
def test_reloads_are_those_of_the_report(episodes: list[tuple[int, int, list[int]]]) -> None:
    versions = [factories.version(number, published_at=60 * number) for number in range(5)]
    trajectories = []
    for place, (worker, began, acted) in enumerate(episodes):
        steps = [factories.step(version=number, at=began + 7 * (n + 1)) for n, number in enumerate(acted)]
        ended = began + 40
        trajectories.append(
            factories.trajectory(f"t-{place}", steps, worker=f"w-{worker}", started_at=began, finished_at=ended)
        )
    logged = [LoggedTrajectory(LogPosition("trajectories", 0, n), each) for n, each in enumerate(trajectories)]
    wanted = reload_seconds(logged, versions)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.sqlite"
        with closing(IndexWriter(path, TOPICS)) as index:
            index.add(batch(versions, topic="versions"))
            index.add(batch(trajectories))
        with reading(path) as connection:
            found = charts.series(connection, 0, 1_000)["reloads"]
    assert max(found["worst"], default=0.0) == max(wanted, default=0.0)
    assert len(found["version"]) <= len(wanted)
    assert bool(found["version"]) == bool(wanted)


@pytest.mark.parametrize("backwards", [False, True])
def test_versions_are_compared_on_the_suite_that_the_report_compares(tmp_path: Path, backwards: bool) -> None:
    """A list of tasks of two suites, whose phones end in any order."""
    records = [
        Evaluation(
            number, "ab", "", factories.trajectory(factories.task(f"{suite}-{n}", suite=suite, split=Split.TEST))
        )
        for number, suite, count in ((0, "a", 2), (0, "b", 3), (1, "a", 9), (1, "b", 3))
        for n in range(count)
    ]
    given = records[::-1] if backwards else records
    with closing(IndexWriter(tmp_path / "run.sqlite", {**TOPICS, "evaluations": "id-2"})) as index:
        index.add(batch(given, topic="evaluations"))
    with reading(tmp_path / "run.sqlite") as connection:
        rows = queries.version_scores(connection)
    assert [(row["version"], row["suite"], row["n"]) for row in rows] == [(0, "b", 3), (1, "b", 3)]
    assert {each.task.suite for each in evaluated(given, Split.TEST)[0]} == {"b"}


def test_a_version_that_evaluators_played_different_numbers_of_tasks_of_counts_each_task_once_everywhere(
    path: Path,
) -> None:
    """The first plays two tasks; another one, started with four, plays the same two at the same time, and two more."""
    played = [("e-0", True), ("e-0", False), ("e-1", False), ("e-2", False), ("e-3", False), ("e-1", True)]
    records = [
        Evaluation(
            0,
            "ab",
            "",
            factories.trajectory(
                factories.task(name, split=Split.VALIDATION), outcome=Outcome.SUCCESS if won else Outcome.FAILURE
            ),
        )
        for name, won in played
    ]
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch(records, topic="evaluations"))
    with reading(path) as connection:
        shown = [(row["n"], row["rate"], row["unfinished"]) for row in queries.version_scores(connection)]
    view = RunView()
    for record in records:
        view.feed(record)
    assert shown == [(4, 0.25, False)]
    assert view.status(0).evaluations == ((0, records[0].trajectory.task.suite, Split.VALIDATION, 4, 0.25),)
    of_report, of_scores = score(evaluated(records, Split.VALIDATION)[0]), success_by_policy.by_policy(records)
    assert (of_report.episodes, of_report.success) == (4, 0.25)
    assert [list(each.values()) for each in of_scores.values()] == [[of_report]]


def test_a_version_whose_evaluation_goes_on_is_marked_and_is_not_the_success_of_its_run(path: Path) -> None:
    played = [(0, n) for n in range(6)] + [(1, n) for n in range(6)] + [(2, n) for n in range(2)]
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch([evaluation(n, version, Split.VALIDATION) for version, n in played], topic="evaluations"))
    with reading(path) as connection:
        assert [(row["version"], row["unfinished"]) for row in queries.version_scores(connection)] == [
            (0, False), (1, False), (2, True),
        ]  # fmt: skip
        assert queries.run_row(connection)["success"]["version"] == 1
        assert charts.series(connection, None, None)["success"]["unfinished"] == [False, False, True]


def test_the_evaluation_of_a_version_whose_updates_are_void_is_no_point_of_the_curve(path: Path) -> None:
    """As in reports."""
    journal = [
        *(Update(u, (), "f", u, version=u - 1) for u in range(2)),
        Update(1, (), "f", 2, version=1, void="lost"),
        Update(1, (), "f", 3, version=1),
    ]
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch(journal, topic="updates"))
        index.add(batch([factories.version(n, update=u) for n, u in enumerate((0, 1, 1))], topic="versions"))
        played = [evaluation(n, version, Split.VALIDATION) for version in range(3) for n in range(4)]
        index.add(batch(played, topic="evaluations"))
    with reading(path) as connection:
        assert [row["version"] for row in queries.version_scores(connection)] == [0, 2]


def evaluation(number: int, version: int, split: Split) -> Evaluation:
    played = factories.trajectory(factories.task(f"task-{number}", split=split), outcome=Outcome.SUCCESS)
    return Evaluation(version, "c" * 64, "", played)


@pytest.mark.parametrize(
    ("evaluations", "policies", "newest"),
    [
        ([(-2, Split.TEST)] * 4, [-2], None),
        ([(3, Split.TEST)] * 4 + [(-2, Split.VALIDATION)], [3], 3),
        ([(3, Split.TEST), (-2, Split.TEST), (1, Split.VALIDATION)], [1], 1),
        ([(3, Split.TEST), (-2, Split.TEST)], [-2, 3], 3),
    ],
)
def test_the_success_of_a_run_is_of_a_version_and_never_of_a_prompted_agent(
    path: Path, evaluations: list[tuple[int, Split]], policies: list[int], newest: int | None
) -> None:
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch([evaluation(n, *each) for n, each in enumerate(evaluations)], topic="evaluations"))
    with reading(path) as connection:
        assert [row["version"] for row in queries.version_scores(connection)] == policies
        success = queries.run_row(connection)["success"]
    assert (success and success["version"]) == newest


def test_pages_of_one_list_do_not_shift_while_records_come(path: Path) -> None:
    filled(path, 6)
    with closing(IndexWriter(path, TOPICS)) as index, reading(path) as connection:
        first = queries.episodes(connection, EpisodeFilter.of({}), Page(0, 3))
        index.add(batch([played(6), played(7)], since=6))
        wanted = EpisodeFilter.of({"upto": str(first["upto"])})
        second = queries.episodes(connection, wanted, Page(3, 3))
    assert [row["offset"] for row in [*first["rows"], *second["rows"]]] == [5, 4, 3, 2, 1, 0]
    assert (first["total"], second["total"], second["upto"]) == (6, 6, first["upto"])


def test_ten_thousand_steps_are_one_row(path: Path) -> None:
    long = factories.trajectory("long", [factories.step(version=n % 3) for n in range(10_000)])
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch([long]))
    with reading(path) as connection:
        (row,) = queries.episodes(connection, EpisodeFilter.of({}), Page.of({}))["rows"]
    assert (row["steps"], row["version_first"], row["version_last"]) == (10_000, 0, 2)
