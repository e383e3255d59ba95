"""Clients that have forgotten every broker (librdkafka issue 5301) are replaced, and nothing is lost or read twice."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import Future
from contextlib import ExitStack

import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.consumer import TaskConsumer
from distrl.broker.group import GroupOffsets
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.config import Config, load
from distrl.errors import BrokerError
from distrl.types import Heartbeat, LogPosition
from faults.proxy import Proxy, behind
from groups import member

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
    made = load(sets=[f"run={run}", f"kafka.bootstrap={broker}", "kafka.task_partitions=3"], environ={})
    topic_admin.ensure(made)
    return made


class Clients:
    """Readers of heartbeats, a worker's consumers, producers, and one that asks for the workers' offsets."""

    def __init__(self, config: Config, stack: ExitStack) -> None:
        self.producers = [stack.enter_context(RecordProducer(config, f"test-{n}")) for n in range(EACH)]
        self.readers = [stack.enter_context(LogReader(config, "heartbeats", follows=True)) for _ in range(EACH)]
        self.offsets = stack.enter_context(GroupOffsets(config))
        self._consumers: list[TaskConsumer] = [stack.enter_context(member(config)) for _ in range(EACH)]
        self.read: list[list[LogPosition]] = [[] for _ in range(EACH)]
        self.tasks: set[str] = set()

    def poll(self) -> None:
        for reader, read in zip(self.readers, self.read, strict=True):
            read += [raw.position for raw in reader.read(0.01)]
        for consumer in self._consumers:
            if (found := consumer.poll(0.01)) is not None:
                self.tasks.add(found.task.task_id)
                consumer.commit(found.position)

    def publish(self) -> list[Future[LogPosition | None]]:
        return [producer.publish("heartbeats", "worker-0", BEAT) for producer in self.producers]

    def poll_for(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.poll()


def test_clients_that_forget_every_broker_are_replaced(
    config: Config, proxy: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    def replaced() -> set[str]:
        return {each.name.rpartition(".")[2] for each in caplog.records if REPLACED in each.getMessage()}

    with ExitStack() as stack:
        clients = Clients(behind(proxy, config), stack)
        published = clients.publish()
        deadline = time.monotonic() + PATIENCE_S
        while not replaced().issuperset(KINDS):
            assert time.monotonic() < deadline, f"replaced are only {replaced()}"
            published += clients.publish()
            proxy.leave_out_brokers()
            clients.poll_for(LEFT_OUT_S)
            proxy.leave_out_brokers(False)
            clients.poll_for(NAMED_S)

        published += clients.publish()
        with RecordProducer(config, "feeder") as feeder:
            fed = {f"task-{n}" for n in range(6)}
            for task_id in sorted(fed):
                feeder.publish("tasks", task_id, factories.task(task_id)).result(PATIENCE_S)
        while not (all(each.done() for each in published) and clients.tasks == fed):
            assert time.monotonic() < deadline + PATIENCE_S, (len(published), clients.tasks)
            clients.poll()
        assert all(each.exception() is None for each in published)
        with LogReader(config, "heartbeats") as reader:
            log = [raw.position for batch in reader.to_end() for raw in batch]
        assert len(log) >= len(published)
        while not all(len(read) >= len(log) for read in clients.read):
            assert time.monotonic() < deadline + PATIENCE_S, [len(read) for read in clients.read]
            clients.poll()
        assert clients.read == [log] * EACH
        while sum(committed(clients.offsets).values()) < len(fed):
            assert time.monotonic() < deadline + PATIENCE_S
            clients.poll()


def committed(offsets: GroupOffsets) -> dict[int, int]:
    """Asked again where the client that is asked first has forgotten every broker."""
    try:
        return offsets.committed(range(3))
    except BrokerError:
        return offsets.committed(range(3))
