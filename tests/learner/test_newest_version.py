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


def test_an_open_transaction_is_named_once_it_hides_what_was_published_again_too(
    waiting: Waiting, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """To publish again ends one of the learner's own. One of nobody would hide whatever is published."""
    first, again = factories.version(3), factories.version(4)
    waiting.watch.look(first)
    log.hidden_from = [9] * (MISSED + 2)
    waiting.wait(first, MISSED)
    log.at += LOOK_S
    with pytest.raises(CutError, match="no longer shows version 3"):
        waiting.watch.look(first)
    assert not caplog.records
    waiting.watch.look(again)
    waiting.wait(again, 2)
    assert caplog.text.count("abort --topic r.versions --partition 0 --start-offset 9") == 2
    log.shown = [first, again]
    waiting.wait(again, MISSED)


def test_another_open_transaction_than_the_one_that_hid_the_version_before_is_given_the_same_chance(
    waiting: Waiting, log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    first, again = factories.version(3), factories.version(4)
    waiting.watch.look(first)
    log.hidden_from = [9] * MISSED + [12] * MISSED
    waiting.wait(first, MISSED)
    log.at += LOOK_S
    with pytest.raises(CutError):
        waiting.watch.look(first)
    waiting.watch.look(again)
    waiting.wait(again, MISSED)
    log.at += LOOK_S
    with pytest.raises(CutError, match="no longer shows version 4"):
        waiting.watch.look(again)
    assert not caplog.records


def test_a_learner_that_publishes_often_or_has_published_nothing_does_not_look(waiting: Waiting, log: Log) -> None:
    for number in range(9):
        waiting.watch.look(factories.version(number))
        log.at += 0.9 * LOOK_S
        waiting.watch.look(factories.version(number))
    waiting.watch.look(None)
    log.at += 9 * LOOK_S
    waiting.watch.look(None)
    assert log.looks == 0
