"""Whether the newest version is still shown, as the learner looks while it waits."""

from __future__ import annotations

import factories
import pytest
from distrl.broker.open_transactions import OpenTransaction
from distrl.broker.reader import CutError
from distrl.clock import Clock
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.learner import newest_version
from distrl.learner.newest_version import LOOK_S, MISSED, NewestVersionWatch
from distrl.types import Version
from waiting import until


class Log:
    """Stands for the topic, and for a clock. looks: how often it was read."""

    def __init__(self) -> None:
        self.shown: list[Version] = []
        self.away = False
        self.hidden_from: list[int] = []
        """Where each further look finds that a transaction is open; none for looks after them."""
        self.looks, self.at = 0, 0.0

    def read(self) -> list[Version]:
        self.looks += 1
        if self.away:
            raise BrokerError("versions", "no broker answers", "")
        return list(self.shown)

    def hidden(self, topic: str) -> tuple[OpenTransaction, ...]:
        return tuple(OpenTransaction(f"r.{topic}", 0, self.hidden_from.pop(0)) for _ in self.hidden_from[:1])


class Waiting:
    def __init__(self, log: Log, settings: Config) -> None:
        self.log = log
        self.watch = NewestVersionWatch(settings, Clock(ticks=lambda: log.at))

    def wait(self, newest: Version | None, looks: int) -> None:
        """Until the log was read so often, a look after the other."""
        for _ in range(looks):
            before = self.log.looks
            self.log.at += LOOK_S
            self.watch.look(newest)
            until(lambda before=before: self.log.looks > before and not self.watch._asking.running)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(newest_version, "Lineage", lambda config: made)
    monkeypatch.setattr(newest_version, "open_transactions", lambda config, topic: made.hidden(topic))
    return made


@pytest.fixture
def waiting(log: Log, settings: Config) -> Waiting:
    return Waiting(log, settings)


def test_a_version_that_is_missed_twice_is_lost(waiting: Waiting, log: Log) -> None:
    newest = factories.version(3)
    waiting.watch.look(newest)
    waiting.wait(newest, MISSED)
    log.at += LOOK_S
    with pytest.raises(CutError, match="no longer shows version 3"):
        waiting.watch.look(newest)


def test_one_that_was_missed_once_and_a_broker_that_is_away_say_nothing(waiting: Waiting, log: Log) -> None:
    newest = factories.version(3)
    waiting.watch.look(newest)
    waiting.wait(newest, MISSED - 1)
    log.shown = [factories.version(2), newest]
    waiting.wait(newest, 2)
    log.shown, log.away = [], True
    waiting.wait(newest, 2 * MISSED)
    log.away = False
    waiting.wait(newest, MISSED - 1)
    log.at += LOOK_S
    waiting.watch.look(newest)


def test_a_version_that_an_open_transaction_hides_is_not_lost_and_what_ends_the_transaction_is_said(
    waiting: Waiting, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    newest = factories.version(3)
    waiting.watch.look(newest)
    log.hidden_from = [5, 7, 9]  # of processes that are at work
    waiting.wait(newest, 3)
    assert not caplog.records
    log.hidden_from = [9]
    waiting.wait(newest, 1)
    assert not caplog.records, "it is open for 10 seconds, and a process may take 15"
    log.hidden_from = [9]
    waiting.wait(newest, 1)
    assert "kafka-transactions.sh" in caplog.text
    assert "abort --topic r.versions --partition 0 --start-offset 9" in caplog.text
    waiting.wait(newest, MISSED)  # it is over, and did not have the version
    log.at += LOOK_S
    with pytest.raises(CutError, match="no longer shows version 3"):
        waiting.watch.look(newest)


def test_a_learner_that_publishes_often_or_has_published_nothing_does_not_look(waiting: Waiting, log: Log) -> None:
    for number in range(9):
        waiting.watch.look(factories.version(number))
        log.at += 0.9 * LOOK_S
        waiting.watch.look(factories.version(number))
    waiting.watch.look(None)
    log.at += 9 * LOOK_S
    waiting.watch.look(None)
    assert log.looks == 0
