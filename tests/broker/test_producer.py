from __future__ import annotations

import ctypes
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Message, Producer
from distrl.broker import producer as producer_module
from distrl.broker.client_watch import ClientWatch
from distrl.broker.connect import BeyondUseError
from distrl.broker.producer import WARN_AFTER_S, WARN_EVERY_S, RecordProducer, RecordTooLargeError, refuse_too_large
from distrl.config import Config, load
from distrl.errors import BrokerError
from distrl.types import Heartbeat
from waiting import WITHIN_S, until

BEAT = Heartbeat("worker-0", "worker", 0, None, None)


@pytest.fixture
def away() -> Iterator[Config]:
    """Settings for a broker that is away: its port is held, and nothing listens there."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield load(sets=["run=r", f"kafka.bootstrap=127.0.0.1:{held.getsockname()[1]}"], environ={})


def test_a_record_waits_while_the_broker_is_away_and_fails_when_given_up(away: Config) -> None:
    producer = RecordProducer(away, "a-test")
    futures = [producer.publish("heartbeats", "worker-0", BEAT) for _ in range(3)]
    assert producer.flush(0.05) == 3
    assert producer.waiting == 3
    assert not any(future.done() for future in futures)
    assert producer.close(0.05) == 3
    for future in futures:
        with pytest.raises(BrokerError, match=r"distrl\.r\.heartbeats: cannot publish a record"):
            future.result(0)
    assert producer.close(0.05) == 0


class RefusingLate:
    """A client that hears of the broker's refusal after the last wait for it, which no real broker can be timed to."""

    def __init__(self) -> None:
        self.served: Callable[[KafkaError, Message | None], None] | None = None
        self.purged = False

    def produce(self, topic: str, *, on_delivery: Callable[[KafkaError, Message | None], None], **record: Any) -> None:
        self.served = on_delivery

    def poll(self, timeout_s: float) -> int:
        time.sleep(timeout_s)
        return 0

    def purge(self) -> None:
        self.purged = True

    def flush(self, timeout_s: float) -> int:
        if self.purged and self.served is not None:
            served, self.served = self.served, None
            served(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
        return 0


def test_a_record_whose_refusal_is_served_while_closing_fails_too(
    away: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RecordProducer._made

    def refusing(self: RecordProducer, more: dict[str, object], *_: object) -> object:
        return made(self, more) if more else (RefusingLate(), ClientWatch(self._config.kafka))

    monkeypatch.setattr(RecordProducer, "_made", refusing)
    producer = RecordProducer(away, "a-test")
    future = producer.publish("heartbeats", "worker-0", BEAT)
    assert producer.close(0.05) == 1
    with pytest.raises(BrokerError, match=r"distrl\.r\.heartbeats: cannot publish a record"):
        future.result(0)
    assert producer.waiting == 0


def fail(client: Producer, code: int, reason: bytes) -> None:
    """Have librdkafka take `code` for what the client cannot go on after."""
    (file,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    made = ctypes.CDLL(str(file)).rd_kafka_test_fatal_error
    made.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
    handle = ctypes.c_void_p.from_address(id(client) + object.__basicsize__)
    assert made(handle, code, reason) == 0


def test_a_client_that_can_do_nothing_more_says_so(away: Config) -> None:
    with RecordProducer(away, "a-test") as producer:
        waiting = producer.publish("heartbeats", "worker-0", BEAT)
        fail(producer._producer, KafkaError.INVALID_PRODUCER_EPOCH, b"somebody else writes")
        with pytest.raises(BeyondUseError, match=r"somebody else writes[^$]*start this process again"):
            waiting.result(WITHIN_S)
        with pytest.raises(BeyondUseError, match="start this process again"):
            producer.publish("heartbeats", "worker-0", BEAT)
        assert producer.waiting == 0


def test_records_wait_on_where_the_broker_has_forgotten_the_client(
    away: Config, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a sequence number that the broker did not expect."""
    producer = RecordProducer(away, "a-test")
    waiting = [producer.publish("heartbeats", "worker-0", BEAT) for _ in range(3)]
    forgotten = producer._producer
    fail(producer._producer, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"records are lost")
    waiting.append(producer.publish("heartbeats", "worker-0", BEAT))
    until(lambda: producer._producer is not forgotten and len(producer._producer) >= 4, "another client to have all")
    assert (producer.waiting, [future.done() for future in waiting]) == (4, [False] * 4)
    assert "has lost records that it had acknowledged (test_fatal_error: records are lost)" in caplog.text
    assert producer.close(0.05) == 4
    for future in waiting:
        with pytest.raises(BrokerError, match="cannot publish a record"):
            future.result(0)


def test_records_wait_on_where_the_client_is_stuck(
    away: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where another client cannot be made at once."""
    make, refused = RecordProducer._made, [BrokerError("kafka.ssl_ca", "is being replaced", "wait")]

    def made(self: RecordProducer, *given: Any) -> object:
        if refused:
            raise refused.pop()
        return make(self, *given)

    monkeypatch.setattr(producer_module, "AGAIN_S", 0.01)
    with RecordProducer(away, "a-test") as producer:
        monkeypatch.setattr(RecordProducer, "_made", made)
        waiting = [producer.publish("heartbeats", "worker-0", BEAT) for _ in range(3)]
        stuck, watch = producer._producer, producer._watches[0]
        for _ in range(3):
            watch._look('{"brokers": {}}')
        until(lambda: producer._producer is not stuck and len(producer._producer) >= 3, "another client to have all")
        assert (producer.waiting, [future.done() for future in waiting]) == (3, [False] * 3)
        assert "and cannot be replaced yet: kafka.ssl_ca: is being replaced" in caplog.text
        assert "has forgotten every broker, and is replaced; sending 3 unacknowledged records again" in caplog.text
        assert producer.close(0.05) == 3


def test_a_thread_that_ends_unexpectedly_fails_what_waits_and_what_comes(
    away: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = threading.Event()

    def serve(self: RecordProducer) -> None:
        assert published.wait(WITHIN_S)
        raise ValueError("a callback is broken")

    monkeypatch.setattr(RecordProducer, "_serve", serve)
    with RecordProducer(away, "a-test") as producer:
        waiting = [producer.publish("heartbeats", "worker-0", BEAT) for _ in range(2)]
        published.set()
        for future in waiting:
            with pytest.raises(BeyondUseError, match=r"has ended: ValueError: a callback is broken"):
                future.result(WITHIN_S)
        with pytest.raises(BeyondUseError, match="start this process again"):
            producer.publish("heartbeats", "worker-0", BEAT)
        assert producer.waiting == 0


def test_records_that_wait_are_reported_now_and_then_and_when_it_is_over(
    away: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(RecordProducer, "_serve", lambda self: None)  # this thread says when it is
    with caplog.at_level("INFO", "distrl.broker.producer"), RecordProducer(away, "a-test") as producer:
        producer.publish("heartbeats", "worker-0", BEAT)
        ((_, began),) = producer._unacknowledged.values()
        for after in (WARN_AFTER_S / 2, WARN_AFTER_S + 1, WARN_AFTER_S + 2, WARN_AFTER_S + 2 + WARN_EVERY_S):
            producer._warn_waiting(began + after)
        said = [record.getMessage() for record in caplog.records]
        assert [text[:40] for text in said] == ["1 records are not acknowledged by 127.0."] * 2
        producer.close(0.05)
        producer._warn_waiting(time.monotonic())
        assert caplog.records[-1].getMessage() == "all late records are acknowledged"


def test_a_too_large_record_is_refused_before_it_is_queued(away: Config) -> None:
    with RecordProducer(away, "a-test") as producer:
        with pytest.raises(RecordTooLargeError, match=r"kafka\.max_record_bytes"):
            producer.publish("heartbeats", "k" * away.kafka.max_record_bytes, BEAT)
        assert producer.waiting == 0


def test_the_limit_counts_key_and_value() -> None:
    refuse_too_large("t", b"k", b"vv", most=3)
    refuse_too_large("t", None, None, most=0)
    with pytest.raises(RecordTooLargeError, match="4 bytes is larger than the 3"):
        refuse_too_large("t", b"kk", b"vv", most=3)


def test_a_client_that_is_made_anew_may_have_lost_its_lonely_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever serves both at that moment goes on."""
    producer = object.__new__(RecordProducer)
    producer._producer = producer._unbatched = SimpleNamespace(poll=None)  # type: ignore[assignment]
    producer._watches, producer._reported, producer._closing = [], deque(), threading.Event()

    def made_anew(*_: object) -> None:
        producer._unbatched = None

    monkeypatch.setattr(producer, "_wait", made_anew)
    monkeypatch.setattr(producer, "_warn_waiting", lambda now: producer._closing.set())
    producer._serve()
    assert producer._closing.is_set()
