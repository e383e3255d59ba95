from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # re-exported without saying so
from distrl.broker import topic_admin
from distrl.broker.connect import RefusedError
from distrl.broker.topic_admin import _mismatch
from distrl.broker.topics import TOPICS, TopicDifference
from distrl.config import Config
from distrl.errors import BrokerError

CONFIG = Config(run="r")


def test_a_broker_that_tells_the_old_number_for_a_moment_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    old = TopicDifference("distrl.r.tasks", "partitions", "2", "3")
    shrinks = TopicDifference("distrl.r.trajectories", "partitions", "2", "1")
    told = [[old, shrinks], [old, shrinks], [shrinks]]
    monkeypatch.setattr(topic_admin, "_differences", lambda client, config: told.pop(0))
    assert topic_admin._left(None, CONFIG) == [shrinks]
    assert told == [], "a difference that stays is not waited for"


class LosingItsLeader:
    """A client whose first answer is of a partition that loses its leader this moment, which no test can time."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = list(offsets)

    def list_topics(self, topic: str, timeout: float) -> None:
        pass

    def list_offsets(
        self, wanted: dict[TopicPartition, object], **given: object
    ) -> dict[TopicPartition, Future[object]]:
        answer: Future[object] = Future()
        answer.set_result(SimpleNamespace(offset=self._offsets.pop(0)))
        return dict.fromkeys(wanted, answer)


def test_a_partition_that_loses_its_leader_is_asked_again_and_never_taken_for_an_empty_log() -> None:
    """librdkafka gives -1001 out, and no error."""
    client = LosingItsLeader(OFFSET_INVALID, 3, OFFSET_INVALID, 7)
    assert topic_admin.offsets(client, CONFIG, "distrl.r.updates", [0]) == {0: (3, 7)}


def test_the_broker_is_asked_once_which_topics_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Config] = []

    def existing(client: object, config: Config) -> dict[str, dict[int, list[int]]]:
        asked.append(config)
        return {}

    monkeypatch.setattr(topic_admin, "check", lambda config: None)
    monkeypatch.setattr(topic_admin, "admin", lambda kafka: None)
    monkeypatch.setattr(topic_admin, "_existing", existing)
    with pytest.raises(BrokerError, match="missing at the broker"):
        topic_admin.ensure(CONFIG, create=False)
    assert asked == [CONFIG]


class RefusingUpdates:
    """A client of a broker where another process has created `tasks` meanwhile, and `updates` may not be created."""

    def create_topics(self, wanted: list[NewTopic], **given: object) -> dict[str, Future[None]]:
        answers: dict[str, Future[None]] = {topic.topic: Future() for topic in wanted}
        for name, code in (
            ("tasks", KafkaError.TOPIC_ALREADY_EXISTS),
            ("updates", KafkaError.TOPIC_AUTHORIZATION_FAILED),
        ):
            answers[f"distrl.r.{name}"].set_exception(KafkaException(KafkaError(code)))
        return answers


def test_a_refused_creation_names_the_topic_that_was_refused() -> None:
    missing = [TOPICS["tasks"], TOPICS["updates"]]
    with pytest.raises(RefusedError) as caught:
        topic_admin._create(RefusingUpdates(), CONFIG, missing)
    assert caught.value.where == "distrl.r.updates"


def test_the_mismatch_lists_every_difference_and_what_fixes_it() -> None:
    error = _mismatch(
        CONFIG,
        [
            TopicDifference("distrl.r.tasks", "partitions", "32", "16"),
            TopicDifference("distrl.r.updates", "cleanup.policy", "compact", "delete"),
        ],
    )
    assert "distrl.r.tasks: partitions is 32, declared is 16" in str(error)
    assert "distrl.r.updates: cleanup.policy is compact, declared is delete" in str(error)
    assert "distrl topics ensure --alter" in error.hint
    assert "set kafka.task_partitions to 32" in error.hint


def test_copies_that_are_missing_are_reported_with_the_command_that_makes_them() -> None:
    missing = [TopicDifference("distrl.r.tasks", "replication factor", "1", "3")]
    before = _mismatch(CONFIG, missing)
    assert "replication factor is 1, declared is 3" in str(before)
    assert "or set kafka.replication_factor to 1" in before.hint
    after = _mismatch(CONFIG, missing, Path("/out/reassign-r.json"))
    assert f"kafka-reassign-partitions.sh --bootstrap-server {CONFIG.kafka.bootstrap} " in after.hint
    assert "--reassignment-json-file /out/reassign-r.json --execute" in after.hint
