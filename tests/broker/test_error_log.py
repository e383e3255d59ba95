from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError
from distrl.broker.connect import STALE_S, ErrorLog, reported

LOG = logging.getLogger("distrl.broker.a-test")
AWAY = KafkaError(KafkaError._TRANSPORT, "127.0.0.1:1: connection refused")


def test_what_was_reported_while_nobody_polled_is_not_reported_as_news(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    errors = ErrorLog(LOG, "reading", lambda: now)
    errors.polling()
    errors(AWAY)
    assert len(caplog.records) == 1
    now += STALE_S + 1
    errors.polling()
    errors(AWAY)  # it waited in the client's queue
    errors.polling()
    errors(AWAY)  # and so did this one
    assert len(caplog.records) == 1
    errors.drained()
    errors(AWAY)
    assert [record.getMessage() for record in caplog.records] == ["reading: 127.0.0.1:1: connection refused"] * 2


def test_brokers_that_are_down_are_not_counted() -> None:
    assert "1/1" not in reported(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert reported(AWAY) == "127.0.0.1:1: connection refused"
