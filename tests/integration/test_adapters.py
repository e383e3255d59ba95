"""Pruning on a real log and store: what trajectories name stays while they are there, read by the learner or not."""

from __future__ import annotations

import uuid
from pathlib import Path

import factories
import pytest
from confluent_kafka import TopicPartition
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.topics import topic_name
from distrl.broker.versions import Lineage, VersionFollower
from distrl.config import Config, StoreSettings, load
from distrl.errors import PolicyError, StoreError
from distrl.learner.adapters import BLOCK, NamedVersions, prune_adapters
from distrl.offline.adapter import export_adapter
from distrl.policy.recurrent_q.directory import Described, make
from distrl.policy.registry import SHIPPED, policy_of
from distrl.store.adapters import put_adapter, read_adapter
from distrl.store.objects import ObjectStore, open_store
from distrl.types import Version

pytestmark = pytest.mark.integration

LIMIT_S = 60.0
COUNT = 4 * BLOCK
KEEP = 3


@pytest.fixture
def config(broker: str, s3: StoreSettings) -> Config:
    sets = [f"run=adapters-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", "kafka.task_partitions=1"]
    made = load(sets=[*sets, f"learner.keep_adapters={KEEP}"], environ={}).model_copy(update={"store": s3})
    topic_admin.ensure(made)
    return made


def published(config: Config, store: ObjectStore) -> list[Version]:
    versions = [
        factories.version(n, adapter=put_adapter(store, config.run, f"{config.run} {n}".encode())) for n in range(COUNT)
    ]
    publish(config, versions)
    return versions


def publish(config: Config, versions: list[Version]) -> None:
    """Returns once the last is visible: the broker has marked its transaction then."""
    with Journal(config) as journal:
        for each in versions:
            journal.publish_version(each)
    with VersionFollower(config) as follower:
        assert follower.wait_newer(versions[-1].version - 1, LIMIT_S) == versions[-1]


def play(config: Config, number: int, version: int) -> None:
    trajectory = factories.trajectory(factories.task(f"task-{number}"), (factories.step(version=version),))
    with RecordProducer(config, "test") as producer:
        producer.publish("trajectories", trajectory.task_id, trajectory).result(LIMIT_S)


def stored(store: ObjectStore, versions: list[Version]) -> set[int]:
    there = set(store.list("adapters/"))
    return {each.version for each in versions if each.adapter.key in there}


def test_adapters_go_once_no_trajectory_names_them_and_readers_are_told(config: Config, tmp_path: Path) -> None:
    store = open_store(config.store)
    versions, newest = published(config, store), set(range(COUNT - KEEP, COUNT))
    play(config, 0, 0)
    play(config, 1, BLOCK)
    lineage, named, of_block = Lineage(config), NamedVersions(), set(range(BLOCK, 2 * BLOCK))
    prune_adapters(config, store, lineage, named, {})
    assert stored(store, versions) == newest | of_block | set(range(BLOCK))
    place = TopicPartition(topic_name(config.run, "trajectories"), 0, 1)
    client = admin(config.kafka)
    client.delete_records([place])[place].result(LIMIT_S)
    prune_adapters(config, store, lineage, named, {0: 2})
    assert stored(store, versions) == newest | of_block
    assert read_adapter(store, config.run, versions[BLOCK + 1]) == f"{config.run} {BLOCK + 1}".encode()
    with pytest.raises(StoreError, match=f"version 0 of run {config.run}: was pruned by learner.keep_adapters={KEEP}"):
        export_adapter(config, 0, tmp_path / "gone")


def test_weights_that_another_learner_has_published_again_stay(config: Config) -> None:
    """As one does that redoes updates of which an earlier version was made. Who prunes may not have seen it."""
    store = open_store(config.store)
    versions, lineage = published(config, store), Lineage(config)
    assert lineage.read() == versions, "as at the checkpoint before"
    publish(config, [factories.version(COUNT, adapter=versions[1].adapter)])
    unseen = frozenset([versions[2].adapter.key])
    prune_adapters(config, store, lineage, NamedVersions(), {}, unseen)
    assert stored(store, versions) == {1, 2, COUNT - 2, COUNT - 1}


def test_whole_weights_are_not_exported_as_an_adapter(config: Config, tmp_path: Path) -> None:
    store = open_store(config.store)
    make(tmp_path / "q", SHIPPED, Described(width=16))
    policy = policy_of(config.policy.model_copy(update={"base_model": tmp_path / "q"}))
    version = factories.version(0, adapter=put_adapter(store, config.run, policy.adapter()))
    with Journal(config) as journal:
        journal.publish_version(version)
    with VersionFollower(config) as follower:  # it is visible once the broker has marked its transaction
        assert follower.wait_newer(None, LIMIT_S) is not None
    with pytest.raises(PolicyError, match=r"whole weights, as with policy\.trains=all or of a recurrent Q") as error:
        export_adapter(config, None, tmp_path / "out")
    assert version.adapter.key in error.value.hint
    assert not (tmp_path / "out").exists()
