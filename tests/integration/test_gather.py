"""The data of a report; and records of a topic from a time on, as the evaluator looks for what it has done."""

from __future__ import annotations

import pickle
import time
import uuid
from pathlib import Path

import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.config import Config, load
from distrl.evaluate.gather import gather, records
from distrl.types import PROMPTED, Evaluation, Split, Update

pytestmark = pytest.mark.integration


@pytest.fixture
def config(broker: str) -> Config:
    made = load(sets=[f"run=gather-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}"], environ={})
    topic_admin.ensure(made)
    return made


class Times:
    setup_seconds, train_seconds = 0.0, 60.0


def stored(config: Config, folder: Path) -> Config:
    return config.model_copy(update={"store": config.store.model_copy(update={"url": f"file://{folder}/store"})})


def evaluation(number: int, version: int = 0) -> Evaluation:
    played = factories.trajectory(factories.task(f"task-{number}", split=Split.VALIDATION), ())
    return Evaluation(version, "c" * 64, f"{version}-task-{number}", played)


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


def test_a_report_has_no_version_whose_updates_are_void_and_nothing_that_it_played(
    config: Config, tmp_path: Path
) -> None:
    with Journal(config) as journal:
        for u in range(3):
            journal.append(Update(u, (), "made", 0))
            journal.publish_version(factories.version(u, update=u))
        journal.append(Update(1, (), "made", 0, version=2, void="trajectories/0/0 is left out: lost"))
        journal.append(Update(1, (), "made", 0))
        journal.publish_version(factories.version(3, update=1))
    with RecordProducer(config, "a-test") as producer:
        for version in (PROMPTED, 0, 1, 2, 3):
            producer.publish("evaluations", f"{version}", evaluation(1, version)).result(30)
    data = gather(stored(config, tmp_path), Times())
    assert [version.version for version in data.versions] == [0, 3]
    assert [each.version for each in data.evaluations] == [PROMPTED, 0, 3]
    assert [each.u for each in data.updates] == [0, 1]


def test_the_data_of_a_report_is_small_though_records_are_large(config: Config, tmp_path: Path) -> None:
    """A run of hours has tens of thousands of records, each with the tokens of every step."""
    steps = [factories.step(prompt_ids=tuple(range(1_000, 2_000)), action_ids=(7,) * 100) for _ in range(10)]
    with RecordProducer(config, "a-test") as producer:
        for number in range(5):
            played = factories.trajectory(f"task-{number}", steps)
            producer.publish("trajectories", "a-phone", played).result(30)
            producer.publish("evaluations", "0", Evaluation(PROMPTED, "c" * 64, f"p-{number}", played)).result(30)
    data = gather(stored(config, tmp_path), Times())
    held = [*(each.trajectory for each in data.trajectories), *(each.trajectory for each in data.evaluations)]
    assert [len(each.steps) for each in held] == [10] * 10
    assert max(len(pickle.dumps(each)) for each in held) < len(pickle.dumps(played)) / 3
