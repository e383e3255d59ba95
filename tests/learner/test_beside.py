"""What is recorded beside the log ends for good only where it can never be recorded."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from distrl.broker.connect import RefusedError
from distrl.config import Config
from distrl.errors import BrokerError, DistrlError, WireError
from distrl.learner import beside
from distrl.learner.beside import BesideLog
from distrl.types import LogPosition

AWAY, REFUSED = BrokerError("figures", "has no leader", "wait"), RefusedError("figures", "may not be written", "ask")


class Producer:
    def __init__(self, *errors: DistrlError | None) -> None:
        self._errors = list(errors)
        self.sent = 0

    def publish(self, *record: object) -> Future[LogPosition | None]:
        if (error := self._errors.pop(0)) is not None:
            raise error
        self.sent += 1
        done: Future[LogPosition | None] = Future()
        done.set_result(None)
        return done


def sent(monkeypatch: pytest.MonkeyPatch, at_start: BrokerError | None, *errors: DistrlError | None) -> int:
    def retained(config: Config, topic: str) -> None:
        if at_start is not None:
            raise at_start

    monkeypatch.setattr(beside, "retained", retained)
    producer: Any = Producer(*errors)
    log = BesideLog(Config(), producer, "figures", 10)
    for _ in range(len(errors)):
        log.send("key", lambda: None)  # type: ignore[arg-type, return-value]
    return int(producer.sent)


def test_a_broker_that_is_away_for_a_moment_costs_no_later_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent(monkeypatch, AWAY, None, None) == 2
    assert sent(monkeypatch, None, None, AWAY, None) == 2


def test_one_that_refuses_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert sent(monkeypatch, REFUSED, None, None) == 0
    assert sent(monkeypatch, None, None, REFUSED, None) == 1


def test_a_record_that_is_too_large_to_be_written_is_left_out_and_ends_no_learner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as the draws of an update with 170,000 different steps: raised, it would end the learner at every start."""
    too_large = WireError("record draws", "has 8582440 bytes, and 8388608 is the most", "write less")
    assert sent(monkeypatch, None, None, too_large, None) == 2
