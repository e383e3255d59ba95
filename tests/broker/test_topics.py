from __future__ import annotations

from typing import get_args

import pytest
from distrl.broker.topics import TOPICS, Difference, compare, declared_settings, partitions, topic_name
from distrl.config import Config, load
from distrl.errors import BrokerError
from distrl.types import Record

CONFIG = Config(run="r")


def test_every_record_type_has_a_topic() -> None:
    assert {topic.record for topic in TOPICS.values()} - {None} == set(get_args(Record))


def test_a_name_that_is_not_declared_is_refused() -> None:
    assert topic_name("r", "tasks") == "distrl.r.tasks"
    with pytest.raises(BrokerError, match="use one of: tasks, trajectories"):
        topic_name("r", "task")


@pytest.mark.parametrize("name", list(TOPICS))
def test_a_topic_as_declared_has_no_difference_and_each_other_setting_is_one(name: str) -> None:
    topic = TOPICS[name]
    as_declared = declared_settings(CONFIG, topic)
    count = partitions(CONFIG, topic)
    assert compare(CONFIG, topic, count, as_declared) == ()
    assert compare(CONFIG, topic, count + 1, as_declared) == (
        Difference(f"distrl.r.{name}", "partitions", str(count + 1), str(count)),
    )
    for setting, value in as_declared.items():
        other = as_declared | {setting: "other"}
        assert compare(CONFIG, topic, count, other) == (Difference(f"distrl.r.{name}", setting, "other", value),)
        del other[setting]
        assert [d.found for d in compare(CONFIG, topic, count, other)] == ["unset"]


def test_what_the_fold_needs_is_kept_for_ever_and_in_one_order() -> None:
    for name in ("tasks", "trajectories", "demonstrations", "versions", "updates", "evaluations"):
        assert TOPICS[name].retention_ms == -1
    for name in ("trajectories", "versions", "updates"):
        assert TOPICS[name].partitions == 1


def test_a_topic_that_forgets_rolls_its_segments_sooner() -> None:
    heartbeats = TOPICS["heartbeats"]
    assert heartbeats.segment_ms is not None
    assert heartbeats.segment_ms < heartbeats.retention_ms


def test_on_a_cluster_an_acknowledgement_means_two_copies() -> None:
    cluster = load(sets=["kafka.replication_factor=3"], environ={})
    assert declared_settings(cluster, TOPICS["trajectories"])["min.insync.replicas"] == "2"
