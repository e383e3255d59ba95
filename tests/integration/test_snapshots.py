"""Snapshots on a real broker: who starts from one knows what who reads all knows, and a wrong one is not used."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import factories
import msgspec
import pytest
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.journal import Journal
from distrl.broker.packed_state import FORMAT, pack, unpack
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import CutError, LogReader, RawRecord, decoded, retained
from distrl.broker.snapshots import TOPIC, Coverage
from distrl.broker.topics import topic_name
from distrl.cli import stack
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config, load
from distrl.feeder import snapshots
from distrl.feeder.facts import TaskFacts
from distrl.feeder.fleet import Fleet
from distrl.feeder.run import new_state
from distrl.feeder.snapshots import Known, SnapshotWriter, known
from distrl.feeder.topics import Topics
from distrl.telemetry import feed as feeds
from distrl.telemetry.feed import RunFeed
from distrl.telemetry.view import RunStatus, RunView
from distrl.types import Evaluation, Heartbeat, LogPosition, Outcome, Snapshot, Task, Update, Watermark
from groups import member
from integration.test_feeder import MOST, PATIENCE_S, delete_before, fed, feeder, play
from waiting import until

pytestmark = pytest.mark.integration

FEED_OFTEN_SAVING = """
import sys, threading
from distrl.config import load
from distrl.feeder import run, snapshots
snapshots.EVERY_RECORDS, snapshots.LEAST_S = 5, 0.0
run.run_feeder(load(sets=sys.argv[1:], environ={}), threading.Event())
"""
AHEAD = 60
"""Tasks that are compared: retries, and some of every family."""


@pytest.fixture
def sets(broker: str) -> list[str]:
    return [
        f"run=snap-{uuid.uuid4().hex[:10]}",
        f"kafka.bootstrap={broker}",
        "kafka.task_partitions=2",
        "feeder.max_lag=1000",
        "feeder.poll_s=0.05",
        f"feeder.outstanding={MOST}",
    ]


@pytest.fixture
def config(sets: list[str]) -> Config:
    """A run with something in every topic, and no snapshot yet."""
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    with Journal(made) as journal:
        for number in range(3):
            journal.publish_version(factories.version(number, published_at=SYSTEM_CLOCK.now_ms()))
    with RecordProducer(made, "others") as producer:
        for number in range(4):
            of = factories.trajectory(f"e-{number}", outcome=(Outcome.SUCCESS, Outcome.FAILURE)[number % 2])
            producer.publish("evaluations", "0", Evaluation(0, "c" * 64, f"e-{number}", of)).result(PATIENCE_S)
        for name in ("learner", "worker"):
            beat = Heartbeat(name, name, SYSTEM_CLOCK.now_ms(), 0, None, {"update": 1.0})
            producer.publish("heartbeats", name, beat).result(PATIENCE_S)
    return made


@pytest.fixture
def saved(config: Config) -> Config:
    """As `config`, after a feeder that was stopped in order."""
    with member(config) as worker, feeder(config):
        play(config, MOST, worker)
        until(lambda: len(fed(config)) == 2 * MOST, "as many again are outstanding")
    assert last(config) is not None
    return config


def last(config: Config) -> Snapshot | None:
    with LogReader(config, TOPIC) as reader:
        raws = [raw for batch in reader.to_end() for raw in batch]
    return decoded(raws[-1], Snapshot) if raws else None


def covered(config: Config, topic: str) -> int:
    """How many offsets of a topic the last snapshot covers."""
    snapshot = last(config)
    return 0 if snapshot is None else sum(each.last + 1 for each in snapshot.covered if each.topic == topic)


def read(config: Config, from_start: bool = False) -> tuple[Known, int]:
    """What a feeder knows when it begins to feed, and how many records it had to read for that."""
    found = known(config, from_start)
    with ExitStack() as stack:
        topics = Topics(config, found, Fleet(), stack)
        topics.read_all()
    return found, topics.coverage.records


def ahead(config: Config, facts: TaskFacts) -> list[Task]:
    state, tasks = new_state(config, facts), []
    for _ in range(AHEAD):
        tasks.append(state._next())
        state.facts.see_task(tasks[-1])
    return tasks


def plain(facts: TaskFacts) -> Any:
    """As dicts, whose order is that in which partitions were read; without what belongs to a suite."""
    return msgspec.msgpack.decode(zlib.decompress(pack(replace(facts, cursors={}, families=()))))


def assert_nothing_is_lost(config: Config) -> None:
    """Who starts from the snapshot knows, shows and feeds what who reads all does."""
    (resumed, few), (whole, all_of_them) = read(config), read(config, from_start=True)
    assert resumed.snapshot is not None
    assert few < all_of_them
    now = SYSTEM_CLOCK.now_ms()
    assert resumed.view.status(now) == whole.view.status(now)
    assert resumed.view.last_trajectory == whole.view.last_trajectory
    assert plain(resumed.facts) == plain(whole.facts)
    assert ahead(config, resumed.facts) == ahead(config, whole.facts)


def end(config: Config, producer: RecordProducer, outcomes: Iterator[Outcome]) -> None:
    """Each task that was fed and has no trajectory gets one."""
    with LogReader(config, "trajectories") as reader:
        done = {(raw.key or b"").decode() for batch in reader.to_end() for raw in batch}
    with LogReader(config, "tasks") as reader:
        tasks = [decoded(raw, Task) for batch in reader.to_end() for raw in batch]
    for task, outcome in zip((task for task in tasks if task.task_id not in done), outcomes, strict=False):
        made = factories.trajectory(task, outcome=outcome, finished_at=SYSTEM_CLOCK.now_ms())
        producer.publish("trajectories", task.task_id, made).result(PATIENCE_S)


def test_a_feeder_that_was_killed_feeds_on_as_one_that_reads_all_would(sets: list[str], config: Config) -> None:
    outcomes = iter([Outcome.SUCCESS, Outcome.FAILURE, Outcome.INTERRUPTED, Outcome.UNKNOWN] * 1_000)
    killed = subprocess.Popen([sys.executable, "-c", FEED_OFTEN_SAVING, *sets])
    try:
        with RecordProducer(config, "workers") as producer:
            for rounds in range(1, 5):
                until(lambda rounds=rounds: len(fed(config)) >= rounds * MOST, "it feeds")
                end(config, producer, outcomes)
            until(lambda: covered(config, "trajectories") >= 3 * MOST, "a snapshot covers most of it")
            killed.kill()
            killed.wait(PATIENCE_S)
            with Journal(config) as journal:
                journal.append(Update(0, (Watermark(topic_name(config.run, "trajectories"), 0, MOST),), "f", 1))
                journal.publish_version(factories.version(3, published_at=SYSTEM_CLOCK.now_ms()))
            end(config, producer, iter([next(outcomes) for _ in range(MOST // 2)]))
    finally:
        killed.kill()
        killed.wait(PATIENCE_S)
    assert_nothing_is_lost(config)
    before = len(fed(config))
    with feeder(config):
        until(lambda: len(fed(config)) > before, "another goes on")
    assert max(Counter(fed(config)).values()) == 1
    assert_nothing_is_lost(config)


def test_who_starts_after_an_orderly_stop_reads_next_to_nothing(saved: Config) -> None:
    assert_nothing_is_lost(saved)
    assert read(saved)[1] == 0
    with feeder(saved):
        until(lambda: len(fed(saved)) == 2 * MOST, "it has begun")


def status(config: Config) -> tuple[RunStatus, float, int]:
    """What is shown, since when nothing came, and how many records were read for it but for heartbeats."""
    totals = [0]
    with RunFeed(config, lambda read, _: totals.append(read)) as feed:
        beats = sum(end - first for first, end in retained(config, "heartbeats").values())
        return feed._view.status(0), feed._view.last_trajectory, totals[-1] - beats


def test_what_is_shown_is_the_same_with_a_snapshot_and_without(saved: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    resumed, since, few = status(saved)
    monkeypatch.setattr(feeds, "restored", lambda *_: None)
    whole, since_too, many = status(saved)
    assert (resumed, since) == (whole, since_too)
    assert {beat.process for beat in whole.processes} == {"feeder", "learner", "worker"}
    assert (whole.trajectories, len(whole.evaluations), whole.newest and whole.newest.version) == (MOST, 1, 2)
    assert few <= 0 < MOST <= many


def test_a_terminal_shows_that_a_long_log_is_read_and_a_file_gets_nothing(
    config: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stack, "LONG", 1)
    for terminal, is_shown in (("1", True), ("0", False)):
        monkeypatch.setenv("TTY_COMPATIBLE", terminal)
        with stack._opened(config):
            assert ("reading the log" in capsys.readouterr().err) == is_shown


def write(config: Config, snapshot: Snapshot) -> None:
    with RecordProducer(config, "somebody") as producer:
        producer.publish(TOPIC, config.run, snapshot).result(PATIENCE_S)


def altered(topic: str, **given: object) -> Callable[[Snapshot], Snapshot]:
    """A snapshot with another mark in a topic."""
    return lambda snapshot: replace(
        snapshot,
        covered=tuple(replace(each, **given) if each.topic == topic else each for each in snapshot.covered),
    )


WRONG: dict[str, tuple[Callable[[Snapshot], Snapshot], str]] = {
    "hash": (altered("trajectories", sha256="0" * 64), r"trajectories\[0\] has another record"),
    "beyond the end": (altered("versions", last=10**9), r"record 1000000000 of versions\[0\], which has the records"),
    "before the start": (altered("trajectories", last=-1), "ids|record -1 of trajectories"),
    "partition": (altered("evaluations", partition=7), r"evaluations\[7\], which has the records from 0 to 0"),
    "twice": (lambda snapshot: replace(snapshot, covered=snapshot.covered * 2), "it covers a partition twice"),
    "format": (lambda snapshot: replace(snapshot, format=FORMAT + 1), f"have format {FORMAT + 1}, and this"),
    "bytes": (lambda snapshot: replace(snapshot, view=b"garbage", feeder=b"garbage"), "cannot be read"),
    "swapped": (lambda snapshot: replace(snapshot, view=snapshot.feeder, feeder=snapshot.view), "cannot be read"),
    "of nothing": (lambda snapshot: replace(snapshot, covered=()), "more than 0 ids"),
}


def assert_not_used(config: Config, caplog: pytest.LogCaptureFixture, why: str) -> None:
    """Neither by a feeder nor by a view, and both say why; what they know is the same all the same."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found, records = read(config)
        shown, _, _ = status(config)
    said = [record.getMessage() for record in caplog.records if record.name.endswith("snapshots")]
    assert len(said) == 2
    for line in said:
        assert "the last snapshot is not used, so the log is read from its start" in line
        assert re.search(why, line), line
    whole, all_of_them = read(config, from_start=True)
    assert (found.snapshot, records) == (None, all_of_them)
    assert plain(found.facts) == plain(whole.facts)
    assert shown == whole.view.status(0)


def test_a_wrong_snapshot_is_not_used_and_the_log_says_why(saved: Config, caplog: pytest.LogCaptureFixture) -> None:
    good = last(saved)
    assert good is not None
    for change, why in WRONG.values():
        write(saved, change(good))
        assert_not_used(saved, caplog, why)
    with RecordProducer(saved, "somebody") as producer:
        producer.publish_bytes(topic_name(saved.run, TOPIC), b"x", b"garbage").result(PATIENCE_S)
    assert_not_used(saved, caplog, "not with c3 01")
    write(saved, good)
    assert_nothing_is_lost(saved)


def test_other_records_under_the_same_offsets_are_not_taken_for_those_that_were_read(
    saved: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that was made again, as after a loss of its disk or a mirror of another run."""
    made_again(saved, "evaluations")
    with RecordProducer(saved, "others") as producer:
        for number in range(9):
            of = factories.trajectory(f"o-{number}")
            producer.publish("evaluations", "0", Evaluation(0, "c" * 64, "e", of)).result(PATIENCE_S)
    assert_not_used(saved, caplog, r"evaluations\[0\] has another record 3")


def test_records_that_were_read_and_are_deleted_leave_nothing_to_know_the_log_by(
    saved: Config, caplog: pytest.LogCaptureFixture
) -> None:
    delete_before(saved, "trajectories", {0: MOST})
    assert_not_used(saved, caplog, rf"record {MOST - 1} of trajectories\[0\], which has the records from {MOST}")


def test_a_partition_whose_records_are_all_deleted_and_none_of_which_it_covers_is_not_believed(
    saved: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that was added, or that had no task when the snapshot was written."""
    good = last(saved)
    assert good is not None
    rest = tuple(each for each in good.covered if each.topic != "tasks")
    write(saved, replace(good, feeder=pack(TaskFacts(saved.feeder.max_retries)), covered=rest))
    assert known(saved, from_start=False).snapshot is not None, "nothing is deleted"
    with LogReader(saved, "tasks") as reader:
        delete_before(saved, "tasks", dict(reader.ends))
    with caplog.at_level(logging.WARNING):
        assert known(saved, from_start=False).snapshot is None
    assert re.search(r"covers nothing of tasks\[\d\], whose first \d+ records are deleted", caplog.text)


def test_other_retries_are_counted_from_the_start(saved: Config, caplog: pytest.LogCaptureFixture) -> None:
    """Which interrupted tasks are to be fed again was decided under the setting of then."""
    other = saved.model_copy(update={"feeder": saved.feeder.model_copy(update={"max_retries": 7})})
    with caplog.at_level(logging.WARNING):
        assert known(other, from_start=False).snapshot is None
    assert "feeder.max_retries is 7, and was" in caplog.text


def made_again(config: Config, *topics: str) -> None:
    names = [topic_name(config.run, topic) for topic in topics]
    client = admin(config.kafka)
    for future in client.delete_topics(names).values():
        future.result(PATIENCE_S)
    until(lambda: not set(names) & client.list_topics(timeout=10).topics.keys(), "they are gone")
    topic_admin.ensure(config)


def test_a_run_without_the_topic_is_read_from_its_start_and_fed(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that began before there was one."""
    name, client = topic_name(config.run, TOPIC), admin(config.kafka)
    client.delete_topics([name])[name].result(PATIENCE_S)
    until(lambda: name not in client.list_topics(timeout=10).topics, "it is gone")
    with caplog.at_level(logging.WARNING):
        assert status(config)[0].newest is not None
        assert caplog.records == [], "a view says nothing of it"
        with feeder(config):
            until(lambda: len(fed(config)) == MOST, "it feeds")
    assert "no snapshots are written" in caplog.text
    assert "`distrl topics ensure` makes it" in caplog.text


def test_after_a_line_that_makes_updates_void_the_log_is_read_from_its_start(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """The trajectories that they had learned count again, and a snapshot has forgotten them."""
    name = topic_name(config.run, "trajectories")
    with member(config) as worker, feeder(config), Journal(config) as journal:
        play(config, MOST, worker)
        journal.append(Update(0, (Watermark(name, 0, MOST // 2),), "f", 1))
        journal.append(Update(1, (Watermark(name, 0, MOST),), "f", 1))
        until(lambda: len(fed(config)) == 2 * MOST, "as many again are outstanding")
    assert_nothing_is_lost(config)
    assert len(read(config)[0].facts.unlearned) == 0
    with Journal(config) as journal:
        journal.append(Update(1, (Watermark(name, 0, MOST // 2),), "f", 2, void="lost"))
    with pytest.raises(CutError, match="updates from 1 on are void"):
        read(config)
    assert len(read(config, from_start=True)[0].facts.unlearned) == MOST // 2
    with caplog.at_level(logging.WARNING), feeder(config):
        until(lambda: "reading every topic again from its start: updates from 1" in caplog.text, "it reads all again")
        until(lambda: covered(config, "updates") > 0 and unlearned(config) == MOST // 2, "and saves what it knows now")
    assert_nothing_is_lost(config)


def unlearned(config: Config) -> int:
    snapshot = last(config)
    return -1 if snapshot is None else len(unpack(snapshot.feeder, TaskFacts, 10_000).unlearned)


def beats(view: RunView, *names: str) -> None:
    now = SYSTEM_CLOCK.now_ms()
    for name in names:
        view.feed(Heartbeat(name, "worker", now, None, None), now)


def test_when_a_snapshot_is_written(config: Config) -> None:
    facts, view, coverage, offset = TaskFacts(3), RunView(), Coverage(), 0

    def come(count: int) -> None:
        nonlocal offset
        for _ in range(count):
            coverage.see("tasks", RawRecord(LogPosition("tasks", 0, offset), b"k", b"v", 0))
            offset += 1

    with RecordProducer(config, "feeder") as producer:
        writer = SnapshotWriter(config, producer, 0)

        def written(now: float) -> bool:
            producer.flush(PATIENCE_S)
            is_due = writer.due(now, coverage, view)
            if is_due:
                writer.write(now, coverage, facts, view)
            return is_due

        assert not written(100.0), "there is nothing to save"
        come(1)
        assert written(100.0)
        assert not written(1_000.0), "nothing has come since"
        come(1)
        assert not written(101.0)
        assert written(100.0 + snapshots.EVERY_S)
        come(snapshots.EVERY_RECORDS)
        assert not written(101.0 + snapshots.EVERY_S)
        assert written(100.0 + snapshots.EVERY_S + snapshots.LEAST_S), "many have come"
        beats(view, "a")
        assert written(1_000.0), "there is a process more"
        beats(view, "a")
        assert not written(2_000.0), "a heartbeat of one that is known"
        come(1)
        writer.later(2_000.0)
        assert not written(2_000.0)
        assert writer.due(2_000.0, coverage, view, at_end=True)
    assert covered(config, "tasks") == offset - 1


def test_a_snapshot_that_is_too_large_is_only_logged(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    small = config.model_copy(update={"kafka": config.kafka.model_copy(update={"max_record_bytes": 1024})})
    view, coverage = RunView(), Coverage()
    beats(view, *(uuid.uuid4().hex for _ in range(100)))
    with RecordProducer(small, "feeder") as producer, caplog.at_level(logging.WARNING):
        writer = SnapshotWriter(small, producer, 0)
        assert writer.due(100.0, coverage, view)
        writer.write(100.0, coverage, TaskFacts(3), view)
        beats(view, "another")
        assert not writer.due(10_000.0, coverage, view, at_end=True)
    assert "no snapshots are written" in caplog.text
    assert last(config) is None
