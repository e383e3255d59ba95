"""A broker that is away for longer than any time-out: workers can stop, and the learner goes on unaided."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import factories
import psutil
import pytest
from confluent_kafka import Producer
from distrl.broker.consumer import CLOSE_S, LOOK_S, LoggedTask, TaskConsumer
from distrl.broker.fenced import COMMIT_TIMEOUT_S, TRANSACTION_TIMEOUT_S
from distrl.broker.journal import journalled
from distrl.broker.reader import LogReader
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.learner.journal_writer import JournalWriter, UnwrittenError
from distrl.types import ObjectRef, Update, Version, Watermark
from groups import member
from journals import updates_of
from waiting import until

from faults.going import until_written
from faults.live import PATIENCE_S, WARMUP, LiveRun
from faults.proxy import END_TRANSACTION, Proxy, behind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PER_UPDATE = 3
AT_WORK = 8
"""Updates of the policy after which a learner has read what was in the log when it began."""
GRACE_S = 20.0
"""What a busy machine may add to a deadline."""


def poll_until(consumer: TaskConsumer, done: Callable[[LoggedTask | None], bool]) -> LoggedTask | None:
    deadline = time.monotonic() + PATIENCE_S
    while not done(found := consumer.poll(0.05)):
        assert time.monotonic() < deadline
    return found


def test_a_consumer_closes_in_time_though_the_broker_hangs(run: LiveRun, caplog: pytest.LogCaptureFixture) -> None:
    run.feed(1)
    consumer = member(run.config)
    logged = poll_until(consumer, lambda found: found is not None)
    assert logged is not None
    run.servers.signal("kafka", signal.SIGSTOP)
    try:
        consumer.commit(logged.position)
        began = time.monotonic()
        with caplog.at_level(logging.WARNING):
            consumer.close()
        assert time.monotonic() - began < CLOSE_S + GRACE_S
        assert "will be repeated" in caplog.text
        assert "the broker does not answer" in caplog.text
    finally:
        run.servers.signal("kafka", signal.SIGCONT)
    with member(run.config) as heir:  # the broker may have the commit in its buffer, and do it now
        again = poll_until(heir, lambda found: found is not None or run.committed() == 1)
    assert again is None or again.task == logged.task


@pytest.mark.faults_long
def test_a_consumer_closes_in_time_though_the_broker_is_gone(run: LiveRun) -> None:
    run.feed(1)
    consumer = member(run.config)
    logged = poll_until(consumer, lambda found: found is not None)
    assert logged is not None
    run.servers.kill("kafka")
    consumer.commit(logged.position)
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < CLOSE_S + GRACE_S


def test_a_consumer_knows_that_no_broker_can_be_reached_and_that_one_can_again(run: LiveRun, proxy: Proxy) -> None:
    run.feed(2)
    with member(behind(proxy, run.config)) as consumer:
        assert poll_until(consumer, lambda found: found is not None) is not None
        assert not consumer.brokers_away
        proxy.cut()
        poll_until(consumer, lambda found: consumer.brokers_away)
        later = time.monotonic() + 10 * LOOK_S
        while time.monotonic() < later:  # the client may look for others, or say nothing more
            consumer.poll(0.05)
            assert consumer.brokers_away
        proxy.hint()
        poll_until(consumer, lambda found: not consumer.brokers_away and bool(consumer.partitions))


@pytest.mark.faults_long
def test_a_worker_stops_though_the_broker_hangs(run: LiveRun) -> None:
    run.feed(4)
    worker = run.worker()
    run.publish_version(0)
    run.until("a trajectory of each", lambda: len(run.counted()) == 4)
    run.servers.signal("kafka", signal.SIGSTOP)
    try:
        run.stop("worker-0")
    finally:
        run.servers.signal("kafka", signal.SIGCONT)
    assert worker.code == 0


# The learner


@contextmanager
def standing_still(run: LiveRun, updates: int) -> Iterator[None]:
    """A learner in the midst of that many updates, whose records it has read: its next append is near once it goes on,
    which it does at the end of the block. Else it could be through before this process takes the broker away."""
    run.record(demonstrations=6, trajectories=PER_UPDATE * (updates - WARMUP))
    learner = psutil.Process(run.learner("stands_still_at_update", nth=WARMUP + AT_WORK).pid)
    run.until("it to stand still", lambda: learner.status() == psutil.STATUS_STOPPED)
    yield
    learner.send_signal(signal.SIGCONT)


def waits(run: LiveRun, attempts: int) -> None:
    learner = run.roles["learner"]
    run.until("it to say what it waits for", lambda: learner.said().count("waiting for the broker") >= attempts)


def hangs_until(run: LiveRun, attempts: int, updates: int) -> None:
    with standing_still(run, updates):
        run.servers.signal("kafka", signal.SIGSTOP)
    learner = run.roles["learner"]
    try:
        waits(run, attempts)
    finally:
        run.servers.signal("kafka", signal.SIGCONT)
    run.until_learned(updates)
    assert learner.code is None
    run.end_learning(after_a_fault=True)


def test_a_learner_waits_out_a_broker_that_hangs_for_longer_than_a_transaction(run: LiveRun) -> None:
    """Two attempts take COMMIT_TIMEOUT_S each, and a transaction lasts no longer than TRANSACTION_TIMEOUT_S."""
    assert 2 * COMMIT_TIMEOUT_S > TRANSACTION_TIMEOUT_S
    hangs_until(run, attempts=2, updates=40)


@pytest.mark.faults_long
def test_a_learner_waits_out_a_broker_that_hangs_for_longer_than_any_transaction(run: LiveRun) -> None:
    hangs_until(run, attempts=4, updates=60)


class StandsStill:
    """A client whose process does nothing between writing and committing until the broker has put an end to that."""

    def __init__(self, client: Producer, config: Config, topic: str) -> None:
        self._client, self._config, self._topic = client, config, topic

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def commit_transaction(self, timeout_s: float) -> None:
        self._client.flush(PATIENCE_S)
        # the record, and the mark that ends its transaction
        until(lambda: self._ends() >= 2, "both", PATIENCE_S, every_s=0.2)
        self._client.commit_transaction(timeout_s)

    def _ends(self) -> int:
        with LogReader(self._config, self._topic) as reader:
            return reader.ends[0]


@pytest.mark.faults_long
def test_a_learner_that_stood_still_in_a_write_sees_that_this_may_be_why_and_goes_on(run: LiveRun) -> None:
    with JournalWriter(run.config) as writer:
        journal = writer._journal
        journal._producer = StandsStill(journal._producer, run.config, "updates")  # type: ignore[assignment]
        with pytest.raises(UnwrittenError, match=r"or this one stalled for 15 s"):
            writer.append(update(0))
        assert journalled(run.config) == []
        until_written(lambda: writer.append(update(0)), PATIENCE_S)
    assert updates_of(run.config, 1) == [update(0)]


@pytest.mark.faults_long
def test_a_learner_that_waits_for_a_dead_broker_can_be_stopped_and_one_that_is_not_goes_on(run: LiveRun) -> None:
    with standing_still(run, 60):
        run.servers.kill("kafka")
    waits(run, 1)
    run.stop("learner")
    run.servers.start("kafka")
    assert len(run.updates()) < 60
    learner = run.learner()
    run.until("it to be at work", lambda: "redoing" in learner.said() or len(run.updates()) == 60)
    run.record(trajectories=PER_UPDATE * 60)
    run.until("it to be at work", lambda: len(run.updates()) > 60)
    run.servers.kill("kafka")
    waits(run, 2)
    run.servers.start("kafka")
    run.until_learned(400)
    assert learner.code is None
    run.end_learning(after_a_fault=True)


def test_a_version_that_nobody_can_read_stops_no_learner(run: LiveRun) -> None:
    run.record(demonstrations=6)
    run.learner()
    run.until_learned(WARMUP)
    run.stop("learner")
    run.publish_bytes("versions", b"1", b"garbage")
    run.record(trajectories=PER_UPDATE)
    run.learner()
    run.until("an update of the policy", lambda: len(run.updates()) == WARMUP + 1)
    run.until("its version", lambda: [each.version for each in lineage(run.config)] == [0, 1])
    run.stop("learner")


def update(u: int) -> Update:
    return Update(u, (Watermark("t", 0, u),), "f" * 64, 1_000 + u)


def version(number: int) -> Version:
    ref = ObjectRef(f"adapters/{'a' * 64}.safetensors", "a" * 64, 1)
    return factories.version(number, adapter=ref)


@pytest.mark.faults_long
@pytest.mark.parametrize("swallowed", [True, False])
def test_a_record_is_in_the_log_once_whether_the_answer_or_the_request_was_lost(
    run: LiveRun, proxy: Proxy, swallowed: bool
) -> None:
    with JournalWriter(behind(proxy, run.config, connect_timeout_s=3.0)) as journal_writer:
        journal_writer.append(update(0))
        for write in (lambda: journal_writer.append(update(1)), lambda: journal_writer.publish_version(version(0))):
            if swallowed:
                proxy.swallow_answer(f"distrl.{run.config.run}.learner".encode(), END_TRANSACTION, then_cut=True)
            else:
                proxy.cut()
            with pytest.raises(UnwrittenError):
                write()
            proxy.hint()
            until_written(write, PATIENCE_S)
        journal_writer.append(update(2))
    assert updates_of(run.config, 3) == [update(0), update(1), update(2)]
    assert run.versions() == [version(0)]
