"""What a TaskConsumer does at its end, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from distrl.broker import consumer
from distrl.broker.consumer import TaskConsumer
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.producer import RecordTooLargeError
from distrl.config import Config

CONFIG = Config(run="r")


def test_the_group_is_left_though_a_dead_letter_cannot_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the others get its tasks only after the session time-out."""
    calls: list[str] = []

    def settled() -> list[Any]:
        raise RecordTooLargeError("distrl.r.trajectories.dlq", "refused", "allow more")

    client = SimpleNamespace(pause=lambda places: None, close=lambda: calls.append("left"))
    monkeypatch.setattr(consumer, "Consumer", lambda settings: client)
    TaskConsumer(CONFIG, cast(DeadLetters, SimpleNamespace(settled=settled, waiting=True))).close()
    assert calls == ["left"]
