from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from distrl import config as settings_room
from distrl.broker.journal import History
from distrl.config import Config
from distrl.errors import BrokerError, StoreError
from distrl.learner import publish
from distrl.learner.publish import Publisher, publishes
from distrl.learner.reservations import Reservation, reserve
from distrl.learner.state import LearnerState
from distrl.store.adapters import put_adapter
from distrl.store.objects import ObjectStore, open_store
from distrl.types import ObjectRef, Update, Version

from learner.world import config


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(settings_room.StoreSettings(url=f"file://{tmp_path}"))


@pytest.fixture
def state(settings: Config) -> LearnerState:
    made = LearnerState(settings)
    made.u = settings.warmup.updates
    return made


def test_version_0_follows_the_last_warm_up_update_and_others_every_so_often(base_directory: Path) -> None:
    every_2 = config(base_directory, "learner.publish_every=2")
    assert [u for u in range(9) if publishes(u, every_2)] == [3, 5, 7]


def test_a_version_is_published_once_and_names_its_weights(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    sent: list[Version] = []
    publisher = Publisher(settings, store, sent.append, (), lambda: 17)
    publisher.due(state)
    publisher.due(state)
    state.u += 1
    publisher.due(state)
    first, second = sent
    assert (first.version, first.parent, first.update) == (0, None, 2)
    assert (second.version, second.parent, second.update) == (1, 0, 3)
    assert store.get(first.adapter) == state.policy.adapter()
    assert first.base_model_sha256 == state.policy.base_sha256
    assert publisher.newest == second


def test_a_learner_that_redoes_an_update_finds_its_version(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    sent: list[Version] = []
    Publisher(settings, store, sent.append, (), lambda: 1).due(state)
    Publisher(settings, store, sent.append, list(sent), lambda: 2).due(state)
    assert len(sent) == 1


def test_a_version_that_is_lost_is_not_made_again_below_a_later_one(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    sent: list[Version] = []
    publisher = Publisher(settings, store, sent.append, (), lambda: 1)
    publisher.due(state)
    state.u += 1
    publisher.due(state)
    state.u -= 1
    redone = Publisher(settings, store, sent.append, sent[1:], lambda: 2)
    redone.due(state)
    redone.settle(state)
    assert [version.version for version in sent] == [0, 1]


def test_other_weights_under_a_known_version_are_refused(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    sent: list[Version] = []
    Publisher(settings, store, sent.append, (), lambda: 1).due(state)
    other = replace(sent[0], adapter=replace(sent[0].adapter, sha256=hashlib.sha256(b"other").hexdigest()))
    with pytest.raises(BrokerError, match="redoing update 2 gives") as refused:
        Publisher(settings, store, sent.append, [other], lambda: 2).due(state)
    assert "`distrl runs show` of the run says which code" in refused.value.hint


def test_the_next_number_is_above_a_rollback(settings: Config, state: LearnerState, store: ObjectStore) -> None:
    sent: list[Version] = []
    Publisher(settings, store, sent.append, (), lambda: 1).due(state)
    rollback = replace(sent[0], version=7, parent=0)
    state.u += 1
    Publisher(settings, store, sent.append, [sent[0], rollback], lambda: 2).due(state)
    assert (sent[1].version, sent[1].parent) == (8, 7)


def test_only_a_version_that_takes_an_adapter_of_before_the_newest_waits_for_what_may_delete_it(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    sent, waited = list[Version](), list[int]()
    other = b"other weights"

    def publish(known: list[Version]) -> None:
        Publisher(settings, store, sent.append, known, lambda: 1, None, lambda: waited.append(len(known))).due(state)

    publish([])
    state.u += 1
    publish([sent[0]])
    state.u += 1
    between = replace(sent[1], version=2, adapter=put_adapter(store, settings.run, other))
    publish([*sent, between])
    assert ([each.version for each in sent], waited) == ([0, 1, 3], [3])


def test_nothing_is_announced_whose_weights_could_not_be_stored(
    settings: Config, state: LearnerState, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("store", "no space left", "free some")

    sent: list[Version] = []
    publisher = Publisher(settings, store, sent.append, (), lambda: 1)
    with monkeypatch.context() as patch:
        patch.setattr(store, "put", full)
        with pytest.raises(StoreError):
            publisher.due(state)
    assert not sent
    publisher.due(state)
    assert [version.version for version in sent] == [0]


@pytest.mark.parametrize("spoilt", [b"", None], ids=["cut", "gone"])
def test_weights_that_the_store_has_lost_are_published_anew_once_and_under_a_higher_number(
    settings: Config, state: LearnerState, store: ObjectStore, spoilt: bytes | None
) -> None:
    """No worker could load them, and those without weights waited for ever."""
    sent: list[Version] = []
    Publisher(settings, store, sent.append, (), lambda: 1).due(state)
    if spoilt is None:
        store.delete(sent[0].adapter.key)
    else:
        store.put_named(sent[0].adapter.key, spoilt)
    for _ in range(2):
        publisher = Publisher(settings, store, sent.append, list(sent), lambda: 2)
        publisher.due(state)
        publisher.settle(state)
    assert [(each.version, each.parent, each.update, each.supersedes) for each in sent] == [
        (0, None, 2, ()),
        (1, 0, 2, ()),
    ]
    assert store.get(sent[1].adapter) == state.policy.adapter()


def test_weights_that_are_stored_again_are_published_though_the_learner_ends_right_then(
    settings: Config, state: LearnerState, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that met what lay there before refuse that version for good."""
    sent: list[Version] = []
    Publisher(settings, store, sent.append, (), lambda: 1).due(state)
    store.put_named(sent[0].adapter.key, b"cut")

    def ends(*_: object) -> ObjectRef:
        put_adapter(store, settings.run, state.policy.adapter())
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(publish, "put_adapter", ends)
        ended = Publisher(settings, store, sent.append, list(sent), lambda: 2)
        with pytest.raises(KeyboardInterrupt):
            ended.settle(state)
    Publisher(settings, store, sent.append, list(sent), lambda: 3).settle(state)
    assert [each.version for each in sent] == [0, 1]


def test_a_version_whose_record_is_lost_is_made_up_for_once_however_often_a_learner_starts(
    base_directory: Path, store: ObjectStore
) -> None:
    settings = config(base_directory, "learner.publish_every=3")
    state = LearnerState(settings)
    state.u = settings.warmup.updates + 1
    sent: list[Version] = []
    for _ in range(3):  # each begins with a checkpoint of the update after the one whose version is lost
        publisher = Publisher(settings, store, sent.append, list(sent), lambda: 1, History(version=4))
        publisher.due(state)
        publisher.settle(state)
    assert [version.version for version in sent] == [5]


def test_a_number_that_a_replaced_learner_has_reserved_late_is_given_to_no_other_weights(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    sent: list[Version] = []
    Publisher(settings, store, sent.append, (), lambda: 1).due(state)
    reserve(store, settings.run, Reservation(0, 1, "ab" * 32))
    Publisher(settings, store, sent.append, (), lambda: 2).due(state)  # the record of version 0 is lost
    assert [version.version for version in sent] == [0, 1]


def test_a_number_that_was_reserved_and_not_published_is_taken_by_the_same_weights(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    def away(_: Version) -> None:
        raise BrokerError("kafka", "is away", "start it")

    sent: list[Version] = []
    with pytest.raises(BrokerError):
        Publisher(settings, store, away, (), lambda: 1).due(state)
    Publisher(settings, store, sent.append, (), lambda: 2).due(state)
    assert [version.version for version in sent] == [0]


def test_a_number_that_earlier_software_has_reserved_is_given_to_no_other_weights(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    """Its record is lost, and the run goes on after an upgrade."""
    old = {"sha256": "ab" * 32, "update": 1, "version": 4}
    store.put_named(f"runs/{settings.run}/newest-version.json", json.dumps(old).encode())
    sent: list[Version] = []
    Publisher(settings, store, sent.append, (), lambda: 1).due(state)
    assert [version.version for version in sent] == [5]


def test_a_number_that_a_line_of_the_journal_names_is_given_to_no_update_of_that_line_or_later(
    settings: Config, state: LearnerState, store: ObjectStore
) -> None:
    """As where the line of an update is lost, and the update is journalled again with the same records: a version is
    void whose number was given before its update was journalled."""
    sent: list[Version] = []
    update = state.u - 1
    weights = hashlib.sha256(state.policy.adapter()).hexdigest()
    reserve(store, settings.run, Reservation(0, update, weights))
    publisher = Publisher(settings, store, sent.append, (), lambda: 1)
    publisher.look_up_reserved()
    line = Update(update, (), "f", 0, version=publisher.highest)
    publisher.journalled(line)
    publisher.due(state)
    assert [each.version for each in sent] == [1]
    said = History.of([*(Update(u, (), "f", 0) for u in range(update)), line])
    assert not said.voided(sent[0])
    assert said.voided(replace(sent[0], version=0))
