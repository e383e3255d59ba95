"""Clients that have forgotten every broker (librdkafka issue 5301) are replaced, and nothing is lost."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack

import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.consumer import TaskConsumer
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.config import Config, load
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
REPLACED = "the client has forgotten every broker and is replaced"
KINDS = ("reader", "consumer")
"""A producer forgets them too rarely to be waited for."""


@pytest.fixture
def config(broker: str) -> Config:
    run = f"forgotten-{uuid.uuid4().hex[:10]}"
    made = load(sets=[f"run={run}", f"kafka.bootstrap={broker}", f"kafka.task_partitions={EACH}"], environ={})
    topic_admin.ensure(made)
    return made


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
        for reader, read in zip(self.readers, self.read, strict=True):
            read += [raw.position for raw in reader.read(0.01)]
        for consumer in self.consumers:
            if (found := consumer.poll(0.01)) is not None:
                self.tasks.add(found.task.task_id)
                self._running.append((consumer, found.position))

    def publish(self) -> list[Future[LogPosition | None]]:
        return [producer.publish("heartbeats", "worker-0", BEAT) for producer in self.producers]

    def commit(self) -> None:
        """All tasks that are running, of which some may have gone to other workers."""
        for consumer, position in self._running:
            consumer.commit(position)
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
        with LogReader(config, "heartbeats") as reader:
            log = [raw.position for batch in reader.to_end() for raw in batch]
        assert len(log) >= len(published)
        go_on_until(lambda: all(len(read) >= len(log) for read in clients.read), "every reader has read the log")
        assert [read[: len(log)] for read in clients.read] == [log] * EACH
