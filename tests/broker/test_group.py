"""The workers' offsets as processes outside of the group read them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from distrl.broker import group
from distrl.broker.connect import RefusedError
from distrl.broker.group import GroupOffsets
from distrl.config import Config

CONFIG = Config(run="r")


def answering(monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, KafkaError | None]) -> None:
    """Each partition's (offset, error), as librdkafka gives them."""
    places = [SimpleNamespace(partition=p, offset=o, error=e) for p, (o, e) in enumerate(answers)]

    def client(settings: dict[str, Any]) -> SimpleNamespace:
        return SimpleNamespace(committed=lambda wanted, timeout: places, close=lambda: None)

    monkeypatch.setattr(group, "Consumer", client)


def test_partitions_without_a_commit_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, (7, None), (OFFSET_INVALID, None))
    with GroupOffsets(CONFIG) as offsets:
        assert offsets.committed([0, 1]) == {0: 7}


def test_a_partition_that_the_broker_refuses_is_not_taken_for_one_without_a_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`begin` would commit its first offset, and the workers play all of its tasks again."""
    answering(monkeypatch, (7, None), (OFFSET_INVALID, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    with GroupOffsets(CONFIG) as offsets, pytest.raises(RefusedError, match="may not read the workers' offsets"):
        offsets.committed([0, 1])


def test_after_a_failure_another_client_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that failed may have forgotten every broker, and would fail for ever."""
    place = SimpleNamespace(partition=0, offset=7, error=None)
    closed: list[str] = []

    def failing(wanted: Any, timeout: float) -> Any:
        raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    clients = iter(
        [
            SimpleNamespace(committed=failing, close=lambda: closed.append("first")),
            SimpleNamespace(committed=lambda wanted, timeout: [place], close=lambda: closed.append("second")),
        ]
    )
    monkeypatch.setattr(group, "Consumer", lambda settings: next(clients))
    with GroupOffsets(CONFIG) as offsets:
        with pytest.raises(RefusedError):
            offsets.committed([0])
        assert closed == ["first"]
        assert offsets.committed([0]) == {0: 7}
    assert closed == ["first", "second"]
