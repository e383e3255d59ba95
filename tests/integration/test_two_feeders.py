"""Two feeders of a run on a real broker: the later one stays, whichever of them loses its producer."""

from __future__ import annotations

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import factories
import pytest
from broker.test_producer import fail
from confluent_kafka import KafkaError
from distrl.broker import fenced, topic_admin
from distrl.broker.connect import BeyondUseError
from distrl.broker.fenced import FencedError, FencedProducer, this_process
from distrl.broker.reader import LogReader, decoded
from distrl.config import Config, load
from distrl.feeder import publish
from distrl.feeder.publish import TaskPublisher
from distrl.types import Task
from faults.proxy import Proxy, behind

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0
REPLACED = f"another feeder has taken over run .* It is {this_process()}"


@pytest.fixture
def config(broker: str) -> Config:
    run = f"feeders-{uuid.uuid4().hex[:10]}"
    made = load(sets=[f"run={run}", f"kafka.bootstrap={broker}", "kafka.task_partitions=1"], environ={})
    topic_admin.ensure(made)
    return made


def feed(publisher: TaskPublisher, *names: str) -> None:
    publisher.feed([(factories.task(name), 0) for name in names], {0: 0}, threading.Event())


def test_a_feeder_whose_client_is_beyond_use_goes_on_with_another(config: Config) -> None:
    """As after a loss of the broker's transactions; a new client that fails at once ends it."""
    with TaskPublisher(config) as feeder:
        feed(feeder, "first")
        assert feeder._producer is not None
        fail(feeder._producer._producer, KafkaError.INVALID_TXN_STATE, b"transactions are lost")
        feed(feeder, "second")
    assert fed(config) == ["first", "second"]


def test_a_feeder_whose_new_client_is_beyond_use_too_ends(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[FencedProducer] = []

    class Failing(FencedProducer):
        def open(self) -> None:
            super().open()
            opened.append(self)
            fail(self._producer, KafkaError.INVALID_TXN_STATE, b"transactions are lost")

    monkeypatch.setattr(publish, "FencedProducer", Failing)
    with TaskPublisher(config) as feeder, pytest.raises(BeyondUseError, match="transactions are lost"):
        feed(feeder, "first")
    assert (len(opened), fed(config)) == (2, [])


def fed(config: Config) -> list[str]:
    """Ids of the tasks in the log, in order."""
    with LogReader(config, "tasks") as reader:
        return [decoded(raw, Task).task_id for batch in reader.to_end() for raw in batch]


def test_a_feeder_that_was_away_ends_where_another_has_taken_over_and_leaves_it_in_peace(
    config: Config, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fenced, "COMMIT_TIMEOUT_S", 1.0)
    with TaskPublisher(behind(proxy, config, connect_timeout_s=3.0)) as away, ThreadPoolExecutor(1) as thread:
        feed(away, "first")
        proxy.cut()
        lost = thread.submit(feed, away, "second")
        with TaskPublisher(config) as successor:
            feed(successor, "second", "third")
            proxy.hint()
            with pytest.raises(FencedError, match=REPLACED):
                lost.result(PATIENCE_S)
            feed(successor, "fourth")
    assert fed(config) == ["first", "second", "third", "fourth"]


def test_one_that_takes_over_while_the_older_opens_again_stays(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older looks for a successor and finds none; the successor opens; the older opens, which fences it."""
    later = TaskPublisher(config)
    with TaskPublisher(config) as older, ExitStack() as stack:
        made = older._made

        def made_late() -> FencedProducer:
            stack.enter_context(later)
            return made()

        monkeypatch.setattr(older, "_made", made_late)
        older._close()
        with pytest.raises(FencedError, match=REPLACED):
            feed(older, "first")
        feed(later, "second", "third")
        feed(later, "fourth")
    assert fed(config) == ["second", "third", "fourth"]


def test_a_feeder_that_was_fenced_by_none_that_stays_goes_on(config: Config) -> None:
    """As by one that was killed before it could say that it has taken over."""
    with TaskPublisher(config) as here:
        feed(here, "first")
        with FencedProducer(config, "feeder", "a test", lambda: FencedError("", "", "")):
            pass
        feed(here, "second")
        feed(here, "third")
    assert fed(config) == ["first", "second", "third"]
