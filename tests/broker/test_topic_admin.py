from __future__ import annotations

import pytest
from distrl.broker import topic_admin
from distrl.broker.topic_admin import _mismatch
from distrl.broker.topics import Difference
from distrl.config import Config

CONFIG = Config(run="r")


def test_a_broker_that_tells_the_old_number_for_a_moment_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Difference("distrl.r.tasks", "partitions", "2", "3")
    shrinks = Difference("distrl.r.trajectories", "partitions", "2", "1")
    told = [[old, shrinks], [old, shrinks], [shrinks]]
    monkeypatch.setattr(topic_admin, "_differences", lambda client, config: told.pop(0))
    assert topic_admin._left(None, CONFIG) == [shrinks]
    assert told == [], "a difference that stays is not waited for"


def test_the_mismatch_lists_every_difference_and_what_mends_it() -> None:
    error = _mismatch(
        CONFIG,
        [
            Difference("distrl.r.tasks", "partitions", "32", "16"),
            Difference("distrl.r.updates", "cleanup.policy", "compact", "delete"),
        ],
    )
    assert "distrl.r.tasks: partitions is 32, declared is 16" in str(error)
    assert "distrl.r.updates: cleanup.policy is compact, declared is delete" in str(error)
    assert "distrl topics ensure --alter" in error.mend
    assert "set kafka.task_partitions to 32" in error.mend
