"""What a TaskConsumer does at its end, and when its client is replaced; without a broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition
from distrl.broker import consumer
from distrl.broker.consumer import TaskConsumer
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.producer import RecordTooLargeError
from distrl.config import Config
from distrl.errors import BrokerError
from waiting import WITHIN_S

CONFIG = Config(run="r")


def test_the_group_is_left_though_a_dead_letter_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the others get its tasks only after the session time-out."""
    calls: list[str] = []

    def settled() -> list[Any]:
        raise RecordTooLargeError("distrl.r.trajectories.dlq", "refused", "allow more")

    client = SimpleNamespace(pause=lambda places: None, close=lambda: calls.append("left"))
    monkeypatch.setattr(consumer, "Consumer", lambda settings: client)
    TaskConsumer(CONFIG, cast(DeadLetters, SimpleNamespace(settled=settled, waiting=True))).close()
    assert calls == ["left"]


class Client:
    """A librdkafka consumer's calls, without a broker. Its callbacks are called by the test."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.on: dict[str, Callable[..., None]] = {}
        self.closed = threading.Event()

    def subscribe(self, topics: list[str], **on: Callable[..., None]) -> None:
        self.on = on

    def poll(self, timeout: float) -> None:
        return None

    def close(self) -> None:
        self.closed.set()

    def commit(self, offsets: list[TopicPartition]) -> None: ...
    def incremental_assign(self, places: list[TopicPartition]) -> None: ...
    def incremental_unassign(self, places: list[TopicPartition]) -> None: ...
    def pause(self, places: list[TopicPartition]) -> None: ...
    def resume(self, places: list[TopicPartition]) -> None: ...


def test_a_client_that_is_stuck_is_replaced_and_says_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the old one calls while it is closed, in another thread, is not taken for the new one's."""
    clients: list[Client] = []

    def made(settings: dict[str, Any]) -> Client:
        clients.append(Client(settings))
        return clients[-1]

    monkeypatch.setattr(consumer, "Consumer", made)
    tasks = TaskConsumer(CONFIG)
    tasks.take_for(1)
    tasks.poll(0)
    (old,) = clients
    places = [TopicPartition("distrl.r.tasks", partition) for partition in (0, 1)]
    old.on["on_assign"](old, places)
    assert tasks.partitions == {0, 1}

    for _ in range(20):
        old.settings["stats_cb"]('{"brokers": {}}')
    tasks.poll(0)
    _, new = clients
    assert old.closed.wait(WITHIN_S)
    assert (tasks.partitions, tasks.joined, bool(new.on)) == (frozenset(), True, True)
    old.on["on_assign"](old, places)
    assert tasks.partitions == frozenset()
    new.on["on_assign"](new, places[:1])
    for call in ("on_revoke", "on_lost"):
        old.on[call](old, places)
    old.settings["on_commit"](None, places)
    old.settings["error_cb"](KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    assert tasks.poll(0) is None
    assert tasks.partitions == {0}
    new.on["on_lost"](new, places[:1])
    assert tasks.partitions == frozenset()
    new.settings["error_cb"](KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError):
        tasks.poll(0)
    tasks.close()
