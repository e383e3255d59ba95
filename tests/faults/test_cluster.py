"""A cluster of three brokers: each killed, frozen, emptied and started again, two at once, partitions added."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from distrl.broker import reader, topic_admin
from distrl.broker.journal import ROLE, History
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, RawRecord
from distrl.broker.topics import topic_name
from distrl.config import Config, load
from distrl.errors import BrokerError
from distrl.learner.journal_writer import JournalWriter
from distrl.learner.recover import log_of
from distrl.telemetry.feed import RunFeed
from distrl.types import Update, Watermark
from journals import updates_of

from faults.cluster import NODES, Cluster
from faults.going import Going, append_line
from faults.live import LiveRun
from faults.test_servers import end_all, start_all

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PROMISED_S = 15.0
STEPS = 10
"""What turning to another broker takes on top, in steps as long as the longest while all brokers are there: on a busy
machine three brokers, their clients and other tests share the processors."""
KAFKAS_OWN_S = 28.0
"""By Kafka's own request.timeout.ms it would take 30 s."""
RUNS = 20
"""Most that are made for one whose partitions lie as a test wants them: each has more than ten topics."""
STANDS_STILL_S = 20.0
"""Longer than the cluster and every client of it need to turn to another broker."""


@pytest.fixture
def whole(cluster: Cluster) -> Iterator[Cluster]:
    cluster.repair()
    yield cluster
    cluster.repair()


def settings_of(cluster: Cluster, *sets: str) -> Config:
    run = f"cluster-{uuid.uuid4().hex[:10]}"
    given = [f"run={run}", f"kafka.bootstrap={cluster.bootstrap}", "kafka.task_partitions=3"]
    return load(sets=[*given, "kafka.replication_factor=3", *sets], environ={})


@pytest.fixture
def config(whole: Cluster) -> Config:
    made = settings_of(whole)
    topic_admin.ensure(made)
    return made


def led_by(cluster: Cluster, topic: str, controls: bool) -> tuple[Config, int]:
    """A new run whose topic of this name is led by the controller, or by one of the others, and that node."""
    for _ in range(RUNS):
        config = settings_of(cluster)
        topic_admin.ensure(config)
        node = cluster.leader(topic_name(config.run, topic))
        if (node == cluster.controller()) == controls:
            return config, node
    raise AssertionError(f"of {RUNS} runs none has {topic} led by {'the controller' if controls else 'another node'}")


@pytest.fixture
def run(whole: Cluster, new_run: Callable[..., LiveRun]) -> LiveRun:
    """A whole run whose broker is the cluster."""
    return new_run({"kafka": {"bootstrap": whole.bootstrap, "replication_factor": 3}})


# Short forms


@pytest.mark.parametrize("controls", [False, True], ids=["a broker", "the controller"])
def test_all_work_goes_on_within_15_s_though_a_broker_stands_still(whole: Cluster, controls: bool) -> None:
    """Records are written, followed, journalled, handed out by the group, and topics described: each all the time."""
    config, node = led_by(whole, "heartbeats", controls)
    with Going(config) as going, RunFeed(config) as feed:
        began = time.monotonic()
        going.until_each(10)
        calm = max(going.longest_s(began).values())
        since = time.monotonic()
        whole.freeze(node)
        try:
            silent = set()
            while time.monotonic() < since + STANDS_STILL_S:
                feed.wait(0.5)
                silent |= feed.status().silent
            going.until_each(1)
            longest = going.longest_s(since)
        finally:
            whole.thaw(node)
    print(f"node {node} stood still: {longest}; before it {calm:.1f} s at most")
    assert max(longest.values()) < PROMISED_S + STEPS * calm, longest
    assert "going" not in silent, "its heartbeats waited, and it worked"


@pytest.mark.parametrize("controls", [False, True], ids=["a broker", "the controller"])
def test_the_journal_goes_on_though_the_broker_that_was_to_end_its_transaction_stands_still(
    whole: Cluster, controls: bool
) -> None:
    """The coordinator has taken a commit, and the partition's leader freezes at once: mostly before it has written
    the commit's marker. Until another leader has, the coordinator refuses the learner's next transaction."""
    for _ in range(RUNS):  # until two nodes are concerned
        config, leader = led_by(whole, "updates", controls)
        with JournalWriter(config) as journal:
            if whole.coordinator(f"distrl.{config.run}.{ROLE}") != leader:
                longest = max(_seconds(journal, number) for number in range(5))
                whole.freeze(leader)
                try:
                    waited = _seconds(journal, 5)
                finally:
                    whole.thaw(leader)
                break
    else:
        raise AssertionError(f"of {RUNS} runs none has two nodes concerned")
    print(f"node {leader} stood still: {waited:.1f} s; before it {longest:.1f} s at most")
    assert [line.u for line in updates_of(config, 6)] == list(range(6))
    assert waited < min(PROMISED_S + STEPS * longest, KAFKAS_OWN_S)


def _seconds(journal: JournalWriter, number: int) -> float:
    """Until line `number` is in the journal."""
    began = time.monotonic()
    append_line(journal, number)
    return time.monotonic() - began


def test_a_broker_that_thaws_and_still_takes_itself_for_the_leader_loses_no_record(whole: Cluster) -> None:
    """It answers with the end of when it froze, to whoever asks it alone and at once."""
    for _ in range(3):
        config, node = led_by(whole, "heartbeats", controls=False)
        alone = config.model_copy(update={"kafka": config.kafka.model_copy(update={"bootstrap": whole.address(node)})})
        written(config, "heartbeats", 3)
        whole.freeze(node)
        try:
            written(config, "heartbeats", 3)
            with ThreadPoolExecutor(3) as pool:
                asked = [pool.submit(last_record, alone, "heartbeats", 5) for _ in range(3)]
                time.sleep(0.5)  # their requests wait in its connections
                whole.thaw(node)
                assert [each.result().position.offset for each in asked] == [5, 5, 5]
        finally:
            whole.thaw(node)


def written(config: Config, topic: str, records: int) -> None:
    with RecordProducer(config, "tests") as producer:
        for _ in range(records):
            producer.publish_bytes(topic_name(config.run, topic), b"k", b"v").result(60.0)


def last_record(config: Config, topic: str, offset: int) -> RawRecord:
    """That of the topic's end, read from there."""
    with LogReader(config, topic, {0: offset}) as opened:
        (batch,) = opened.to_end()
    return batch[-1]


@pytest.fixture
def old_answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Config, str], None]:
    """From a call on, a broker says of the topic what it says now, before the cluster tells it that it leads no more:
    a few times."""

    def begin(config: Config, topic: str) -> None:
        ask, left = reader.retained, [reader.retained(config, topic)] * 3
        monkeypatch.setattr(
            reader, "retained", lambda each, name: left.pop() if left and name == topic else ask(each, name)
        )

    return begin


def test_a_learner_reads_its_whole_journal_though_a_broker_answers_with_an_old_end(
    config: Config, old_answers: Callable[[Config, str], None]
) -> None:
    """It would write its next line over those that it has not seen."""
    with JournalWriter(config) as journal:
        append_line(journal, 0)
        old_answers(config, "updates")
        append_line(journal, 1)
        append_line(journal, 2)
    with JournalWriter(config) as journal:
        assert len(journal.history().lines) == 3


def test_what_was_folded_is_not_taken_for_lost_though_a_broker_answers_with_an_old_end(
    config: Config, old_answers: Callable[[Config, str], None]
) -> None:
    written(config, "trajectories", 2)
    old_answers(config, "trajectories")
    written(config, "trajectories", 3)
    topic = topic_name(config.run, "trajectories")
    folded = (Watermark(topic, 0, 4),)
    log = log_of(config, History(updates=(Update(0, folded, "f", 0),)))
    assert log.ranges[topic, 0] == (0, 5)


def test_a_topic_of_one_copy_is_reported_and_the_plan_that_is_written_names_three(
    whole: Cluster, tmp_path: Path
) -> None:
    one = settings_of(whole, "kafka.replication_factor=1", f"stack.directory={tmp_path / 'stack'}")
    topic_admin.ensure(one)
    three = one.model_copy(update={"kafka": one.kafka.model_copy(update={"replication_factor": 3})})
    with pytest.raises(BrokerError, match=r"tasks: replication factor is 1, declared is 3"):
        topic_admin.ensure(three)
    file = tmp_path / f"reassign-{one.run}.json"
    assert not file.exists()
    with pytest.raises(BrokerError, match=rf"kafka-reassign-partitions\.sh .*{file} --execute"):
        topic_admin.ensure(three, alter=True)
    planned = json.loads(file.read_text())["partitions"]
    rows = topic_admin.describe(three)
    assert {row.copies for row in rows} == {1}, "and none of them was made"
    assert len(planned) == sum(row.partitions for row in rows)
    assert all(sorted(each["replicas"]) == list(NODES) for each in planned)
    assert {row.copies for row in topic_admin.describe(settings_of(whole))} == {0}


def goes_on(run: LiveRun, before: int, records: int = 6) -> None:
    """More than the `before` trajectories that there were."""
    run.until("the run to go on", lambda: counted(run) >= before + records)


def counted(run: LiveRun) -> int:
    """0 while a partition goes to another broker: on a busy machine that takes longer than a reader waits."""
    try:
        return len(run.counted())
    except BrokerError:
        return 0


def test_a_run_that_learns_goes_on_though_the_leader_of_its_queue_is_killed(whole: Cluster, run: LiveRun) -> None:
    start_all(run)
    before = counted(run)
    whole.kill(whole.leader(topic_name(run.config.run, "trajectories")))
    goes_on(run, before)
    whole.repair()
    end_all(run)


# Long forms


def killed(cluster: Cluster, node: int) -> None:
    cluster.kill(node)


def frozen(cluster: Cluster, node: int) -> None:
    cluster.freeze(node)


def emptied(cluster: Cluster, node: int) -> None:
    cluster.empty(node)


def restarted(cluster: Cluster, node: int) -> None:
    cluster.kill(node)
    cluster.start(node)


@pytest.mark.faults_long
@pytest.mark.parametrize("trouble", [killed, frozen, emptied, restarted])
def test_a_run_goes_on_whatever_happens_to_one_broker_and_then_to_the_next(
    whole: Cluster, run: LiveRun, trouble: Callable[[Cluster, int], None]
) -> None:
    start_all(run)
    for node in NODES:
        before = counted(run)
        trouble(whole, node)
        goes_on(run, before)
        whole.repair()
    goes_on(run, counted(run))
    end_all(run)


@pytest.mark.faults_long
def test_a_run_waits_while_two_brokers_are_away_and_goes_on_unaided(whole: Cluster, run: LiveRun) -> None:
    start_all(run)
    run.restarted = {"learner"}  # its transaction may run out before they are back
    for node in NODES[:2]:
        whole.kill(node)
    worker = run.roles["worker-0"]
    run.until("the worker to say what it waits for", lambda: "are not acknowledged by" in worker.said())
    whole.repair()
    goes_on(run, counted(run))
    end_all(run)


@pytest.mark.faults_long
def test_partitions_that_are_added_are_used_by_the_feeder_and_the_workers_that_live(run: LiveRun) -> None:
    start_all(run)
    more = run.config.kafka.task_partitions + 4
    kafka = run.config.kafka.model_copy(update={"task_partitions": more})
    topic_admin.ensure(run.config.model_copy(update={"kafka": kafka}), alter=True)
    with LogReader(run.config, "tasks") as reader:
        assert len(reader.ends) == more
    run.until("tasks in the new ones", lambda: {raw.position.partition for raw in run.raw("tasks")} >= set(range(more)))
    end_all(run)
