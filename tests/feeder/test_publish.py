"""Batches of tasks, as the client takes them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from distrl.broker.fenced import Outgoing
from distrl.broker.reader import RawRecord
from distrl.config import load
from distrl.errors import BrokerError
from distrl.feeder import publish
from distrl.feeder.publish import TaskPublisher
from distrl.types import LogPosition, Split, Task

HELD = 10
"""Records that the client takes in one transaction; librdkafka's queue has room for 100,000."""


class Producer:
    """A broker's log, and a client that raises as librdkafka's does where more records are queued than it holds."""

    def __init__(self, failing: int = -1) -> None:
        self.log: list[bytes | None] = []
        self.written = 0
        self._failing = failing

    def write_all(self, records: list[Outgoing]) -> None:
        if len(records) > HELD:
            raise BufferError("Local: Queue full")
        self.written += 1
        if self.written == self._failing:
            raise BrokerError("tasks", "was not acknowledged", "wait")
        self.log += [each.key for each in records]

    def open(self) -> None: ...
    def close(self) -> None: ...


def feed(monkeypatch: pytest.MonkeyPatch, producer: Producer, count: int) -> None:
    def read_since(*_: Any) -> Iterator[RawRecord]:
        return (RawRecord(LogPosition("tasks", 0, at), key, b"", 0) for at, key in enumerate(list(producer.log)))

    monkeypatch.setattr(publish, "FencedProducer", lambda *_: producer)
    monkeypatch.setattr(publish, "read_since", read_since)
    monkeypatch.setattr(publish, "AGAIN_S", 0.0)
    monkeypatch.setattr(publish, "MOST", HELD)
    monkeypatch.setattr(TaskPublisher, "_refuse_replaced", lambda *_: None)
    tasks = [Task(f"t{each}", "home", "find", Split.TRAIN, "find it", 5, 1) for each in range(count)]
    TaskPublisher(load(environ={})).feed([(each, 0) for each in tasks], {}, threading.Event())


def test_more_tasks_than_a_client_queues_are_fed_in_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, producer := Producer(), 2 * HELD + 1)
    assert producer.log == [f"t{each}".encode() for each in range(2 * HELD + 1)]


def test_after_one_of_them_has_failed_only_the_others_are_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, producer := Producer(failing=2), 3 * HELD)
    assert producer.log == [f"t{each}".encode() for each in range(3 * HELD)]
