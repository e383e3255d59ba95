from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from distrl.broker.producer import (
    ERROR_TEXT_BYTES,
    RecordProducer,
    RecordTooLargeError,
    error_headers,
    refuse_too_large,
)
from distrl.config import Config, load
from distrl.errors import BrokerError, WireError
from distrl.types import Heartbeat, LogPosition

BEAT = Heartbeat("worker-0", "worker", 0, None, None)
ORIGIN = LogPosition("distrl.r.trajectories", 0, 17)


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


def test_a_dead_letter_says_where_it_comes_from_and_why() -> None:
    headers = dict(error_headers(ORIGIN, WireError("record", "no such schema", "x" * 5000), "VALUE_CONVERTER"))
    assert headers["__connect.errors.topic"] == b"distrl.r.trajectories"
    assert headers["__connect.errors.partition"] == b"0"
    assert headers["__connect.errors.offset"] == b"17"
    assert headers["__connect.errors.exception.class.name"] == b"WireError"
    assert headers["__connect.errors.exception.message"].startswith(b"record: no such schema")
    assert max(map(len, headers.values())) == ERROR_TEXT_BYTES
