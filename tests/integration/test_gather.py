"""Records of a topic from a time on, as the evaluator looks for what it has done."""

from __future__ import annotations

import time
import uuid

import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.producer import RecordProducer
from distrl.config import Config, load
from distrl.evaluate.gather import records
from distrl.types import Evaluation, Split

pytestmark = pytest.mark.integration


@pytest.fixture
def config(broker: str) -> Config:
    made = load(sets=[f"run=gather-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}"], environ={})
    topic_admin.ensure(made)
    return made


def evaluation(number: int) -> Evaluation:
    played = factories.trajectory(factories.task(f"task-{number}", split=Split.VALIDATION), ())
    return Evaluation(0, "c" * 64, f"0-task-{number}", played)


def found(config: Config, since_ms: int | None) -> list[str]:
    return [record.evaluation_id for _, record in records(config, "evaluations", Evaluation, since_ms)]


def test_what_is_older_is_left_out(config: Config) -> None:
    with RecordProducer(config, "a-test") as producer:
        producer.publish("evaluations", "0", evaluation(1)).result(30)
        between = int(time.time() * 1000) + 1
        while int(time.time() * 1000) < between:  # the log's clock has milliseconds
            pass
        producer.publish("evaluations", "0", evaluation(2)).result(30)
    assert found(config, None) == ["0-task-1", "0-task-2"]
    assert found(config, between - 3_600_000) == ["0-task-1", "0-task-2"]
    assert found(config, between) == ["0-task-2"]
    assert found(config, between + 3_600_000) == []


def test_an_empty_topic_has_none(config: Config) -> None:
    assert found(config, 0) == []
