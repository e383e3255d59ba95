"""Clients that are stuck are replaced, and nothing is lost; clients at work are not."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import factories
import pytest
from distrl.broker import client_watch, consumer, producer, reader, topic_admin
from distrl.broker.client_watch import ClientWatch
from distrl.broker.consumer import TaskConsumer
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.config import Config, KafkaSettings, load
from distrl.types import Heartbeat, LogPosition
from faults.proxy import Proxy, behind
from groups import committed, member

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PATIENCE_S = 240.0
LEFT_OUT_S = 12.0
NAMED_S = 3.0
"""Long enough for a client that has not forgotten to learn the brokers again."""
EACH = 6
"""Clients of each kind: about each sixth forgets the brokers when they have been left out."""
BEAT = Heartbeat("worker-0", "worker", 0, None, None)
REPLACED = "the client has forgotten every broker, and is replaced"
KINDS = ("reader", "consumer")
"""A producer forgets them too rarely to be waited for."""


@pytest.fixture
def config(broker: str) -> Config:
    run = f"forgotten-{uuid.uuid4().hex[:10]}"
    made = load(sets=[f"run={run}", f"kafka.bootstrap={broker}", f"kafka.task_partitions={EACH}"], environ={})
    topic_admin.ensure(made)
    return made


Read = Callable[[], Collection[int]]


class Clients:
    """Readers of heartbeats, workers' consumers, producers."""

    def __init__(self, config: Config, stack: ExitStack) -> None:
        self.producers = [stack.enter_context(RecordProducer(config, f"test-{n}")) for n in range(EACH)]
        self.readers = [stack.enter_context(LogReader(config, "heartbeats", follows=True)) for _ in range(EACH)]
        self.consumers: list[TaskConsumer] = [stack.enter_context(member(config)) for _ in range(EACH)]
        self.read: list[list[LogPosition]] = [[] for _ in range(EACH)]
        self.tasks: set[str] = set()
        self._running: list[tuple[TaskConsumer, LogPosition]] = []

    def poll(self) -> None:
        for log, read in zip(self.readers, self.read, strict=True):
            read += [raw.position for raw in log.read(0.01)]
        for worker in self.consumers:
            if (found := worker.poll(0.01)) is not None:
                self.tasks.add(found.task.task_id)
                self._running.append((worker, found.position))

    def publish(self) -> list[Future[LogPosition | None]]:
        return [each.publish("heartbeats", "worker-0", BEAT) for each in self.producers]

    def commit(self) -> None:
        """All tasks that are running, of which some may have gone to other workers."""
        for worker, position in self._running:
            worker.commit(position)
        self._running.clear()

    def poll_for(self, seconds: float) -> None:
        """Commits at the end: meanwhile the tasks are running."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.poll()
        self.commit()


def test_clients_that_forget_every_broker_are_replaced(
    config: Config, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """librdkafka issue 5301."""

    def replaced() -> set[str]:
        return {each.name.rpartition(".")[2] for each in caplog.records if REPLACED in each.getMessage()}

    fed: set[str] = set()

    def feed() -> None:
        """As a feeder whose client knows its broker."""
        for _ in range(EACH):
            task_id = f"task-{len(fed)}"
            feeder.publish("tasks", task_id, factories.task(task_id)).result(PATIENCE_S)
            fed.add(task_id)

    with ExitStack() as stack:
        feeder = stack.enter_context(RecordProducer(config, "feeder"))
        clients = Clients(behind(proxy, config), stack)
        published = clients.publish()
        deadline = time.monotonic() + PATIENCE_S
        while not replaced().issuperset(KINDS):
            assert time.monotonic() < deadline, f"replaced are only {replaced()}"
            feed()
            published += clients.publish()
            proxy.leave_out_brokers()
            clients.poll_for(LEFT_OUT_S)
            proxy.leave_out_brokers(False)
            clients.poll_for(NAMED_S)

        feed()
        published += clients.publish()
        deadline = time.monotonic() + PATIENCE_S

        def go_on_until(done: Callable[[], bool], what: str) -> None:
            while not done():
                assert time.monotonic() < deadline, f"not yet: {what}"
                clients.poll_for(0.5)

        go_on_until(lambda: all(each.done() for each in published), "every record is acknowledged")
        assert all(each.exception() is None for each in published)
        go_on_until(lambda: all(each.partitions for each in clients.consumers), "every worker has partitions")
        go_on_until(lambda: clients.tasks == fed, "every task has come")
        go_on_until(lambda: sum(committed(config).values()) == len(fed), "every task is committed")
        with LogReader(config, "heartbeats") as whole:
            log = [raw.position for batch in whole.to_end() for raw in batch]
        assert len(log) >= len(published)
        go_on_until(lambda: all(len(read) >= len(log) for read in clients.read), "every reader has read the log")
        assert [read[: len(log)] for read in clients.read] == [log] * EACH


def test_clients_at_work_are_not_called_stuck(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor at rest: a reader at the end of the log, a worker whose buffer is full, a producer without a record. What
    librdkafka's statistics call the state of a partition that is read is in them."""
    watches: list[Recording] = []

    class Recording(ClientWatch):
        def __init__(self, kafka: KafkaSettings, topic: str = "", read: Read = frozenset, *_: Any, **__: Any) -> None:
            super().__init__(kafka, topic, read, 0.1)
            self.looks, self.active, self.was_stuck = 0, set[int](), set[str]()
            watches.append(self)

        def _look(self, text: str) -> None:
            super()._look(text)
            self.looks += 1
            partitions = json.loads(text)["topics"].get(self._topic, {"partitions": {}})["partitions"].values()
            self.active |= {each["partition"] for each in partitions if each["fetch_state"] == "active"}
            self.was_stuck.add(self.stuck)

    for module in (consumer, producer, reader):
        monkeypatch.setattr(module, "ClientWatch", Recording)
    for limit in ("STILL_S", "FORGOTTEN_S"):
        monkeypatch.setattr(client_watch, limit, 3.0)  # on a busy machine an assignment takes a second
    with ExitStack() as stack:
        working = stack.enter_context(RecordProducer(config, "a-test"))
        for number in range(EACH * consumer.LEAST_BUFFERED):
            task = factories.task(f"task-{number}")
            working.publish("tasks", task.task_id, task)
        reading = stack.enter_context(LogReader(config, "tasks"))
        worker = stack.enter_context(member(config))
        worker.pause()  # its buffer fills up, and its partitions are paused
        while not all(watch.looks >= 60 for watch in watches):
            reading.read(0.05)
            worker.poll(0.05)
        assert worker.buffered >= consumer.LEAST_BUFFERED
    assert len(watches) == 3
    assert {tuple(watch.was_stuck) for watch in watches} == {("",)}
    every = set(range(EACH))
    assert [watch.active for watch in watches if watch._topic == topic_name(config.run, "tasks")] == [every, every]
