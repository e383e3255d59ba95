"""The feeder on a real broker: what it feeds, to whom, and what it says when nothing comes back."""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import factories
import pytest
from confluent_kafka import TopicPartition
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.consumer import TaskConsumer
from distrl.broker.group import uncommitted
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import CutError, LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config, load
from distrl.errors import BrokerError, DistrlError
from distrl.feeder import run as feeding
from distrl.feeder import topics
from distrl.feeder.fleet import Fleet
from distrl.feeder.snapshots import known
from distrl.telemetry import stalls
from distrl.telemetry.feed import RunFeed
from distrl.telemetry.fleet import fleet_findings
from distrl.telemetry.monitor import Monitor
from distrl.types import DeviceHealth, Heartbeat, Outcome, Task, Update
from groups import member
from waiting import until

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
MOST = 12


def new_run(broker: str, *more: str) -> Config:
    sets = [
        f"run=feed-{uuid.uuid4().hex[:10]}",
        f"kafka.bootstrap={broker}",
        "feeder.max_lag=1000",
        "feeder.poll_s=0.05",
    ]
    config = load(sets=[*sets, *more], environ={})
    topic_admin.ensure(config)
    with Journal(config) as journal:
        journal.publish_version(factories.version())
    return config


@pytest.fixture
def config(broker: str) -> Config:
    return new_run(broker, "kafka.task_partitions=2", f"feeder.outstanding={MOST}")


def test_a_feeder_says_so_too_where_every_episode_is_interrupted(
    config: Config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "STALLED_S", 3.0)
    with RecordProducer(config, "a worker") as producer:

        def says_so() -> bool:
            task = factories.task(uuid.uuid4().hex)
            found = factories.trajectory(task, (), final_screenshot=None, outcome=Outcome.INTERRUPTED)
            producer.publish("trajectories", task.task_id, found).result(PATIENCE_S)
            return "or interrupted ones alone" in caplog.text

        assert not says_so()  # the producer is connected, and one takes some milliseconds from now on
        with feeder(config), caplog.at_level(logging.WARNING):
            until(says_so, "it says so")


@contextmanager
def feeder(config: Config) -> Iterator[None]:
    """A feeder in a thread, for as long as the block."""
    stop, failures = threading.Event(), list[DistrlError]()

    def feed() -> None:
        try:
            feeding.run_feeder(config, stop)
        except DistrlError as error:
            failures.append(error)

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert failures == []


def fed(config: Config) -> list[str]:
    """The ids of the tasks that stand in the log."""
    with LogReader(config, "tasks") as reader:
        return [decoded(raw, Task).task_id for batch in reader.to_end() for raw in batch]


def play(config: Config, count: int, worker: TaskConsumer) -> list[str]:
    """Do `count` tasks as a worker does: the trajectory is acknowledged, then the task is committed."""
    done: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    with RecordProducer(config, "a worker") as producer:
        while len(done) < count:
            assert time.monotonic() < deadline, f"only {len(done)} of {count} tasks came"
            found = worker.poll(0.05)
            if found is not None:
                trajectory = factories.trajectory(found.task, (), final_screenshot=None, outcome=Outcome.FAILURE)
                producer.publish("trajectories", found.task.task_id, trajectory).result(PATIENCE_S)
                worker.commit(found.position)
                done.append(found.task.task_id)
    until_committed = time.monotonic() + PATIENCE_S
    while worker._committing or worker._flight.committable():
        assert time.monotonic() < until_committed
        worker.poll(0.05)
    return done


def delete_before(config: Config, topic: str, offsets: dict[int, int]) -> None:
    """What retention does."""
    places = [TopicPartition(topic_name(config.run, topic), partition, at) for partition, at in offsets.items()]
    client = admin(config.kafka)
    for future in client.delete_records(places).values():
        future.result(PATIENCE_S)


def test_a_feeder_that_is_stopped_while_it_reads_the_log_does_not_read_it_to_its_end(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()

    class StopsSoon(Monitor):
        def progress(self) -> None:
            super().progress()
            stop.set()

    with caplog.at_level(logging.INFO, logger="distrl.feeder"):
        feeding.run_feeder(config, stop, StopsSoon())
    assert stop.is_set()
    assert "fed before" not in caplog.text


def test_a_feeder_refuses_a_journal_whose_beginning_was_deleted(config: Config) -> None:
    """To it nothing would be learned, whatever the lines that are left say, and it would feed no task for good."""
    with Journal(config) as journal:
        for u in range(3):
            journal.append(Update(u, (), "f", 1))
    delete_before(config, "updates", {0: 2})
    with pytest.raises(BrokerError, match="record 0 is needed, but retention has deleted all before 2"):
        feeding.run_feeder(config, threading.Event())


def test_a_feeder_goes_on_though_the_trajectories_of_all_that_is_done_were_deleted(config: Config) -> None:
    with member(config) as worker, feeder(config):
        play(config, 3 * MOST, worker)
        until(lambda: len(fed(config)) == 4 * MOST, "as many again are outstanding")
    delete_before(config, "trajectories", {0: 3 * MOST})
    with member(config) as worker, feeder(config):
        play(config, 2 * MOST, worker)
        until(lambda: len(fed(config)) == 6 * MOST, "it feeds on")
    assert max(Counter(fed(config)).values()) == 1


def test_a_feeder_feeds_nothing_again_though_the_records_of_tasks_were_deleted(config: Config) -> None:
    with member(config) as worker, feeder(config):
        play(config, 3 * MOST, worker)
        until(lambda: len(fed(config)) == 4 * MOST, "as many again are outstanding")
    before = fed(config)
    delete_before(config, "tasks", dict.fromkeys(range(2), MOST))
    delete_before(config, "trajectories", {0: 3 * MOST})
    with member(config) as worker, feeder(config):
        play(config, 2 * MOST, worker)
        until(lambda: len(set(fed(config)) - set(before)) == 2 * MOST, "it feeds on")
    assert max(Counter(fed(config)).values()) == 1


def test_tasks_that_are_deleted_before_anybody_played_them_are_not_waited_for(
    config: Config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "GROUP_S", 0.5)
    with feeder(config), caplog.at_level(logging.WARNING):
        until(lambda: len(fed(config)) == MOST, "tasks are outstanding")
        with LogReader(config, "tasks") as reader:
            ends = dict(reader.ends)
        delete_before(config, "tasks", ends)
        until(lambda: len(fed(config)) >= MOST, "others are fed")
    # Each partition's may be gone at another look.
    said = re.findall(r"(\d+) tasks were deleted before they were done", caplog.text)
    assert sum(map(int, said)) == MOST


def test_a_task_that_the_broker_had_taken_and_lost_before_it_was_read_back_is_noticed(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut for the reader, which stands at the new end. The task would be outstanding for ever."""
    monkeypatch.setattr(topics, "GROUP_S", 0.2)
    with feeder(config):
        until(lambda: len(fed(config)) == MOST, "tasks are outstanding")
    found = known(config, from_start=False)
    with ExitStack() as stack:
        followed = topics.Topics(config, found, Fleet(), stack)
        followed.read_all()
        assert found.facts.read_back
        deadline = time.monotonic() + 5 * topics.GROUP_S
        while time.monotonic() < deadline:
            followed.follow(0.05)
        lost = factories.task("gone")
        found.facts.see_task(lost)
        found.facts.see_sent(lost.task_id, 1)
        with pytest.raises(CutError, match="it no longer has gone, which it had taken"):
            until(lambda: followed.follow(0.05), "never")


def test_what_is_outstanding_follows_the_phones_that_workers_report(broker: str) -> None:
    config = new_run(broker, "kafka.task_partitions=4")
    phones = tuple(DeviceHealth(f"phone-{n}", "idle") for n in range(12))
    held = tuple(DeviceHealth(f"held-{n}", "held") for n in range(50))
    with feeder(config), RecordProducer(config, "workers") as producer:
        until(lambda: len(fed(config)) == 24, "the least")
        for name in ("one", "other"):
            beat = Heartbeat(name, "worker", 0, 0, None, {}, phones + held, (0, 1))
            producer.publish("heartbeats", name, beat).result(PATIENCE_S)
        until(lambda: len(fed(config)) == 72, "three for each phone that answers")
        with LogReader(config, "tasks") as reader:
            spread = Counter(raw.position.partition for batch in reader.to_end() for raw in batch)
        assert sorted(spread.values()) == [18] * 4, "each partition holds as many"


def test_tasks_are_spread_by_the_phones_of_who_says_that_it_owns_a_partition(broker: str) -> None:
    config = new_run(broker, "kafka.task_partitions=4")
    with RecordProducer(config, "workers") as producer:
        for name, count, own in (("large", 9, (0,)), ("small", 3, (1, 2, 3))):
            phones = tuple(DeviceHealth(f"{name}-{n}", "idle") for n in range(count))
            beat = Heartbeat(name, "worker", int(time.time() * 1000), 0, None, {}, phones, own)
            producer.publish("heartbeats", name, beat).result(PATIENCE_S)
    with feeder(config):
        until(lambda: len(fed(config)) == 36, "three for each phone")
    with LogReader(config, "tasks") as reader:
        spread = Counter(raw.position.partition for batch in reader.to_end() for raw in batch)
    assert spread == {0: 27, 1: 3, 2: 3, 3: 3}


def test_a_slow_worker_holds_no_more_tasks_than_its_partitions_share(config: Config) -> None:
    """Its tasks would else fill feeder.outstanding, and the other worker's phones would wait."""
    with member(config) as slow, feeder(config):
        until(lambda: slow.poll(0.05) is None and len(slow.partitions) == 2, "it has all partitions")
        with member(config) as quick:
            until(lambda: (slow.poll(0), quick.poll(0.05), len(quick.partitions) == 1)[-1], "each has one")
            slow.pause()
            done = play(config, 3 * MOST, quick)
            assert slow.poll(0) is None
        left = Counter(raw.position.partition for raw in uncommitted(config))
    assert len(done) == 3 * MOST
    assert max(left.values()) <= MOST // 2 + 1


def test_a_feeder_says_when_no_trajectory_comes_and_who_holds_the_tasks(
    config: Config, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "STALLED_S", 1.0)
    phones = (DeviceHealth("a", "held"), DeviceHealth("b", "quarantined"))
    with RecordProducer(config, "workers") as producer:
        beat = Heartbeat("worker-7", "worker", int(time.time() * 1000), 0, None, {}, phones, (0,))
        producer.publish("heartbeats", "worker-7", beat).result(PATIENCE_S)
    with feeder(config), caplog.at_level(logging.WARNING):
        until(lambda: "no trajectory has come for" in caplog.text, "it says so")
    assert f"though {MOST} tasks are outstanding: worker-7 holds 6 in partitions 0, 0 of its 2 phones" in caplog.text
    assert "nobody reports to hold 6 in partitions 1" in caplog.text
    with RunFeed(config) as feed:  # as `distrl status` and `distrl doctor` do
        progress, outstanding, partitions, lag = fleet_findings(config, feed)
    assert (progress.ok, outstanding.ok, partitions.ok, lag.ok) == (False, True, True, True)
    assert "worker-7 holds 6 in partitions 0" in progress.detail
    assert f"{MOST} tasks outstanding of at most {MOST} (is set)" in outstanding.detail


def test_a_worker_that_fell_silent_before_the_feeder_began_counts_for_nothing(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "SILENT_S", 0.5)
    fleet = Fleet()
    with RecordProducer(config, "a-test") as producer:
        for name in ("gone", "here"):
            beat = Heartbeat(name, "worker", 0, None, None, devices=(DeviceHealth("d", "idle"),))
            producer.publish("heartbeats", name, beat).result(PATIENCE_S)
            time.sleep(1.0)  # so much older than the next, by the log's clock
    with ExitStack() as opened:
        topics.Topics(config, known(config, from_start=True), fleet, opened).read_all()
    assert [beat.process for beat in fleet.beats(time.monotonic())] == ["here"]
