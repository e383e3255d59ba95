"""The workers' group on a real broker: nothing is committed early, nothing is lost, a busy worker keeps its place."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator

import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.consumer import LoggedTask, TaskConsumer, most_buffered
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.group import begin, commit
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.config import Config, load
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition, Task
from faults.proxy import Proxy, behind
from groups import PHONES, committed, member, members

pytestmark = pytest.mark.integration

SHORTEST_SESSION_S = 6.0  # the broker's group.min.session.timeout.ms
PATIENCE_S = 30.0


@pytest.fixture
def config(broker: str) -> Config:
    sets = [f"run=tasks-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", "kafka.task_partitions=4"]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    return made


@pytest.fixture
def producer(config: Config) -> Iterator[RecordProducer]:
    with RecordProducer(config, "test-feeder") as made:
        yield made


def task(number: int) -> Task:
    return factories.task(f"task-{number}", family="alarm", instruction="set an alarm", phone_seed=number)


def feed(producer: RecordProducer, numbers: range) -> list[LogPosition]:
    futures = [producer.publish("tasks", f"task-{n}", task(n)) for n in numbers]
    return [future.result(PATIENCE_S) for future in futures]


def poll_until(consumer: TaskConsumer, done: Callable[[list[LoggedTask]], bool]) -> list[LoggedTask]:
    """What the consumer hands out until `done` says that it is enough."""
    got: list[LoggedTask] = []
    deadline = time.monotonic() + PATIENCE_S
    while not done(got):
        assert time.monotonic() < deadline, f"only {len(got)} tasks came"
        found = consumer.poll(0.05)
        if found is not None:
            got.append(found)
    return got


def one_partition(broker: str) -> Config:
    sets = [f"run=tasks-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", "kafka.task_partitions=1"]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    return made


def test_out_of_order_ends_commit_only_the_prefix(broker: str) -> None:
    config = one_partition(broker)
    with RecordProducer(config, "test-feeder") as producer, member(config) as consumer:
        feed(producer, range(4))
        first, second, third, fourth = poll_until(consumer, lambda got: len(got) == 4)
        assert [first.task.task_id, fourth.task.task_id] == ["task-0", "task-3"]
        consumer.commit(second.position)
        consumer.commit(fourth.position)
        for _ in range(5):
            consumer.poll(0.05)
        assert committed(config) == {}
        consumer.commit(first.position)
        poll_until(consumer, lambda _: committed(config) == {0: 2})
        consumer.commit(third.position)
        poll_until(consumer, lambda _: committed(config) == {0: 4})


HOLDER = """
import sys
from distrl.broker.consumer import TaskConsumer
from distrl.config import load
with TaskConsumer(load(sets=sys.argv[1:], environ={}), session_timeout_s=6.0) as consumer:
    consumer.take_for(8)
    while True:
        found = consumer.poll(0.1)
        if found is not None:
            print(found.task.task_id, flush=True)
"""


def test_a_worker_killed_before_it_commits_costs_no_task(config: Config, producer: RecordProducer) -> None:
    feed(producer, range(8))
    sets = [f"run={config.run}", f"kafka.bootstrap={config.kafka.bootstrap}", "kafka.task_partitions=4"]
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, *sets], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    held = {holder.stdout.readline().strip() for _ in range(8)}
    holder.kill()
    holder.wait()
    assert held == {f"task-{n}" for n in range(8)}
    with member(config, session_timeout_s=SHORTEST_SESSION_S) as heir:
        again = poll_until(heir, lambda got: len(got) == 8)
    assert {found.task.task_id for found in again} == held


def test_what_was_committed_does_not_come_again(config: Config, producer: RecordProducer) -> None:
    feed(producer, range(12))
    with member(config) as consumer:
        got = poll_until(consumer, lambda got: len(got) == 12)
        done = [found for found in got if found.position.partition != got[-1].position.partition]
        threads = [threading.Thread(target=consumer.commit, args=(found.position,)) for found in done]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        consumer.close()
    left = {found.task.task_id for found in got} - {found.task.task_id for found in done}
    with member(config) as heir:
        again = poll_until(heir, lambda found: len(found) == len(left))
        assert heir.poll(0.3) is None
    assert {found.task.task_id for found in again} == left


def test_a_paused_worker_stays_in_its_group_and_misses_nothing(config: Config, producer: RecordProducer) -> None:
    count = most_buffered(PHONES) + 16
    feed(producer, range(count))
    with member(config, session_timeout_s=SHORTEST_SESSION_S, poll_interval_s=SHORTEST_SESSION_S) as consumer:
        got = poll_until(consumer, lambda got: len(got) == 1)
        consumer.pause()
        known = consumer._consumer.memberid()
        busy_until = time.monotonic() + SHORTEST_SESSION_S + 1.5
        while time.monotonic() < busy_until:
            assert consumer.poll(0.1) is None
        assert consumer.partitions == frozenset(range(4))
        assert consumer._consumer.memberid() == known
        assert consumer._stopped is True, "it has read as many as it may"
        consumer.resume()
        got += poll_until(consumer, lambda more: len(more) == count - 1)
        assert consumer.poll(0.3) is None
    assert sorted(found.task.task_id for found in got) == sorted(f"task-{n}" for n in range(count))


def test_a_worker_begins_the_oldest_of_its_tasks_whichever_partition_it_is_in(
    config: Config, producer: RecordProducer
) -> None:
    with member(config) as ours:
        ours.pause()
        poll_until(ours, lambda _: len(ours.partitions) == 4)
        written = []
        for number in range(24):
            at = feed(producer, range(number, number + 1))[0]
            written.append((at.partition, at.offset))
            began = time.time_ns() // 1_000_000
            while time.time_ns() // 1_000_000 <= began:  # the next one has another time
                ours.poll(0)
        poll_until(ours, lambda _: ours.buffered == len(written))
        ours.resume()
        got = poll_until(ours, lambda got: len(got) == len(written))
    assert {partition for partition, _ in written} == set(range(4))
    assert [(found.position.partition, found.position.offset) for found in got] == written


def test_partitions_that_come_to_a_paused_worker_are_paused_once_its_buffer_is_full(
    config: Config, producer: RecordProducer
) -> None:
    count = most_buffered(PHONES) + 16
    with member(config) as leaving, member(config) as busy:
        poll_both_until(leaving, busy, lambda: len(leaving.partitions) == len(busy.partitions) == 2)
        busy.pause()
        leaving.close()
        poll_until(busy, lambda _: len(busy.partitions) == 4)
        feed(producer, range(count))
        poll_until(busy, lambda got: busy.buffered == most_buffered(PHONES))
        for _ in range(10):
            assert busy.poll(0.05) is None
        assert busy._stopped is True
        assert busy.buffered == most_buffered(PHONES)
        busy.resume()
        assert len(poll_until(busy, lambda got: len(got) == count)) == count


def poll_both_until(one: TaskConsumer, other: TaskConsumer, done: Callable[[], bool]) -> list[LoggedTask]:
    got: list[LoggedTask] = []
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"{one.partitions} and {other.partitions}"
        got += [found for found in (one.poll(0.05), other.poll(0.05)) if found is not None]
    return got


def test_a_task_in_flight_whose_partition_moves_is_dropped_quietly(config: Config, producer: RecordProducer) -> None:
    feed(producer, range(40))
    with member(config) as first:
        held = poll_until(first, lambda got: len(got) == 40)
        with member(config) as second:
            moved = poll_both_until(first, second, lambda: len(second.partitions) == 2)
            for found in held:
                first.commit(found.position)
            kept = [found for found in held if found.position.partition in first.partitions]
            poll_until(first, lambda _: set(committed(config)) == first.partitions)
            repeated = moved + poll_until(second, lambda got: len(moved) + len(got) == 40 - len(kept))
    assert {found.task.task_id for found in repeated} == {f.task.task_id for f in held} - {f.task.task_id for f in kept}
    assert 0 < len(kept) < 40


def test_an_unreadable_task_is_skipped_and_the_next_one_comes(broker: str) -> None:
    config = one_partition(broker)
    with RecordProducer(config, "test-feeder") as producer:
        name = topic_name(config.run, "tasks")
        bad = producer.publish_bytes(name, b"bad", b"no record").result(PATIENCE_S)
        feed(producer, range(1))
        with member(config) as strict, pytest.raises(WireError, match=r"tasks\[0\] offset 0"):
            poll_until(strict, lambda _: False)
        with member(config, DeadLetters.of(config, producer)) as consumer:
            (good,) = poll_until(consumer, lambda got: len(got) == 1)
            consumer.commit(good.position)
            poll_until(consumer, lambda _: committed(config) == {0: 2})
        with LogReader(config, "trajectories.dlq") as reader:
            ((letter,),) = list(reader.to_end())
    assert (good.task.task_id, bad.offset) == ("task-0", 0)
    assert (letter.key, letter.value) == (b"bad", b"no record")


def test_a_run_without_topics_is_reported(broker: str) -> None:
    config = load(sets=["run=never-made", f"kafka.bootstrap={broker}"], environ={})
    with member(config) as consumer, pytest.raises(BrokerError, match="distrl topics ensure"):
        poll_until(consumer, lambda _: False)


def test_partitions_that_left_a_full_hand_bring_tasks_when_they_come_back(
    config: Config, producer: RecordProducer
) -> None:
    full = most_buffered(PHONES)
    feed(producer, range(3 * full))
    with member(config) as ours:
        ours.pause()
        poll_until(ours, lambda _: ours.buffered >= full and len(ours.partitions) == 4)
        for _ in range(5):  # the hand is full by now, and fetching stopped
            ours.poll(0.05)
        with member(config.model_copy(deep=True)) as theirs:
            theirs.pause()
            deadline = time.monotonic() + PATIENCE_S
            while not (theirs.partitions and ours.partitions and len(ours.partitions | theirs.partitions) == 4):
                assert time.monotonic() < deadline
                ours.poll(0.05)
                theirs.poll(0.05)
            ours.resume()
            early = poll_until(ours, lambda got: len(got) > full)  # fetching again, what has left is away
        names = {f"task-{n}" for n in range(3 * full)} - {found.task.task_id for found in early}
        poll_until(ours, lambda got: names <= {found.task.task_id for found in got})


def test_a_worker_without_a_phone_is_in_no_group_and_holds_no_task(config: Config, producer: RecordProducer) -> None:
    feed(producer, range(20))
    with TaskConsumer(config) as idle, member(config) as busy:
        got = poll_both_until(idle, busy, lambda: len(busy.partitions) == 4)
        got += poll_until(busy, lambda more: len(got) + len(more) == 20)
        for _ in range(10):
            assert idle.poll(0.05) is None
        assert (idle.partitions, idle.buffered, idle.joined) == (frozenset(), 0, False)
        assert members(config) == 1
    assert {found.task.task_id for found in got} == {f"task-{n}" for n in range(20)}


def test_who_leaves_commits_what_is_done_gives_the_rest_up_and_may_come_back(
    config: Config, producer: RecordProducer
) -> None:
    feed(producer, range(12))
    with member(config) as first:
        got = poll_until(first, lambda got: len(got) == 12)
        done = [found for found in got if found.position.partition == got[0].position.partition]
        for found in done:
            first.commit(found.position)
        first.take_for(0)
        for found in got:
            first.drop(found.position)
        poll_until(first, lambda _: not first.partitions)
        assert first.poll(0.3) is None
        left = {found.task.task_id for found in got} - {found.task.task_id for found in done}
        with member(config) as heir:
            again = poll_until(heir, lambda found: len(found) == len(left))
            assert {found.task.task_id for found in again} == left
            heir.commit(again[0].position)
            first.take_for(1)
            back = poll_both_until(first, heir, lambda: len(first.partitions) == len(heir.partitions) == 2)
        back += poll_until(first, lambda more: len(back) + len(more) >= len(left) - 1)
    assert {found.task.task_id for found in again[1:]} <= {found.task.task_id for found in back} <= left


def test_who_comes_back_at_once_gets_its_own_tasks_again(config: Config, producer: RecordProducer) -> None:
    feed(producer, range(12))
    with member(config) as only:
        got = poll_until(only, lambda got: len(got) == 12)
        only.take_for(0)
        for found in got:
            only.drop(found.position)
        only.take_for(1)
        again = poll_until(only, lambda found: len(found) == 12)
    assert {found.task.task_id for found in again} == {found.task.task_id for found in got}


def test_a_group_without_offsets_begins_at_the_first_task(config: Config, producer: RecordProducer) -> None:
    """What scales workers by lag sees none where there is no offset."""
    with member(config) as worker:
        poll_until(worker, lambda got: bool(worker.partitions))
        assert begin(config) == 0, "its members commit"
    positions = feed(producer, range(1))
    (fed,) = positions
    with member(config) as worker:
        (got,) = poll_until(worker, lambda got: len(got) == 1)
        worker.commit(got.position)
    assert committed(config) == {fed.partition: fed.offset + 1}
    assert begin(config) == 3
    expected = dict.fromkeys(range(4), 0) | {fed.partition: fed.offset + 1}
    assert committed(config) == expected
    assert begin(config) == 0
    assert committed(config) == expected


def test_a_commit_for_the_workers_ends_where_no_broker_answers(config: Config, proxy: Proxy) -> None:
    """librdkafka waits for ever (its issue 3740)."""
    commit(behind(proxy, config), {0: 0})
    proxy.cut()
    with pytest.raises(BrokerError, match=r"did not answer within 4 s"):
        commit(behind(proxy, config, connect_timeout_s=1.0), {0: 1})
    assert committed(config) == {0: 0}
