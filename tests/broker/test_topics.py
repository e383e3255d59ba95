from __future__ import annotations

from typing import get_args

import pytest
from distrl.broker.topics import TOPICS, TopicDifference, alterable, compare, declared_settings, partitions, topic_name
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
        TopicDifference(f"distrl.r.{name}", "partitions", str(count + 1), str(count)),
    )
    for setting, value in as_declared.items():
        other = as_declared | {setting: "other"}
        assert compare(CONFIG, topic, count, other) == (TopicDifference(f"distrl.r.{name}", setting, "other", value),)
        del other[setting]
        assert [d.found for d in compare(CONFIG, topic, count, other)] == ["unset"]


def test_another_number_of_copies_is_a_difference_in_both_directions() -> None:
    topic, three = TOPICS["updates"], load(sets=["run=r", "kafka.replication_factor=3"], environ={})
    for config, found, declared in ((three, 1, "3"), (CONFIG, 3, "1")):
        (difference,) = compare(config, topic, 1, declared_settings(config, topic), found)
        assert difference == TopicDifference("distrl.r.updates", "replication factor", str(found), declared)
        assert difference.moves
        assert alterable([difference]) == []
    assert compare(three, topic, 1, declared_settings(three, topic), 3) == ()


def test_no_more_copies_in_sync_are_asked_for_than_there_are() -> None:
    """Nothing could be written to such a topic."""
    copies = TopicDifference("distrl.r.updates", "replication factor", "1", "3")
    in_sync = TopicDifference("distrl.r.updates", "min.insync.replicas", "1", "2")
    retention = TopicDifference("distrl.r.updates", "retention.ms", "1", "-1")
    assert alterable([copies, in_sync, retention]) == [retention]
    assert alterable([in_sync, retention]) == [in_sync, retention]


def test_what_the_fold_needs_is_kept_for_ever_and_in_one_order() -> None:
    for name in ("tasks", "trajectories", "demonstrations", "versions", "updates", "evaluations"):
        assert TOPICS[name].retention_ms == -1
    for name in ("trajectories", "versions", "updates"):
        assert TOPICS[name].partitions == 1


def test_a_topic_that_forgets_rolls_its_segments_sooner() -> None:
    heartbeats = TOPICS["heartbeats"]
    assert heartbeats.segment_ms is not None
    assert heartbeats.segment_ms < heartbeats.retention_ms


def test_old_snapshots_go_soon_and_none_is_the_truth() -> None:
    topic = TOPICS["snapshots"]
    assert declared_settings(CONFIG, topic)["cleanup.policy"] == "compact"
    assert topic.segment_ms is not None
    assert topic.segment_ms <= 3_600_000, "the segment that is written to is never compacted"
    assert not topic.is_truth


def test_on_a_cluster_an_acknowledgement_means_two_copies() -> None:
    cluster = load(sets=["kafka.replication_factor=3"], environ={})
    assert declared_settings(cluster, TOPICS["trajectories"])["min.insync.replicas"] == "2"


def test_on_a_single_replica_what_is_the_truth_is_flushed_before_it_is_acknowledged() -> None:
    truth = {"tasks", "trajectories", "demonstrations", "versions", "updates", "settings"}
    for replicas, flushed in ((1, truth), (2, truth), (3, set())):
        config = load(sets=[f"kafka.replication_factor={replicas}"], environ={})
        assert {name for name in TOPICS if declared_settings(config, TOPICS[name]).get("flush.messages")} == flushed
    differing = compare(
        CONFIG, TOPICS["updates"], 1, {**declared_settings(CONFIG, TOPICS["updates"]), "flush.messages": "9"}
    )
    assert [(each.setting, each.found, each.declared) for each in differing] == [("flush.messages", "9", "1")]
