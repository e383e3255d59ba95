"""A checkpoint is uploaded beside updates: it is that of its own update, and nothing is deleted before it is there."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History
from distrl.broker.versions import Lineage
from distrl.config import Config
from distrl.errors import StoreError
from distrl.learner import recover as room
from distrl.learner import saving
from distrl.learner.choose_checkpoint import chain
from distrl.learner.fold import fold
from distrl.learner.publish import Publisher
from distrl.learner.recover import Log, Snapshot, recover, snapshot
from distrl.learner.saving import CheckpointSaver
from distrl.learner.state import LearnerState
from distrl.policy.registry import SHIPPED
from distrl.runs.settings import learning_fingerprint
from distrl.store.checkpoints import checkpoints, save_checkpoint, tensor_files
from distrl.store.directory import DirectoryStore
from distrl.types import ObjectRef, Version
from waiting import until

from learner.test_screens import PATIENCE_S
from learner.world import Screens, update_of, windows


class Store(DirectoryStore):
    """A directory whose writes wait until `free`, or fail while `away`; notes what is written and deleted."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.free, self.away, self.done = threading.Event(), False, list[str]()
        self.refusals, self.deletes = 0, True
        self.free.set()
        self.begun = threading.Semaphore(0)

    def put(self, kind: str, data: bytes, suffix: str, day: str | None = None) -> ObjectRef:
        self.begun.release()
        assert self.free.wait(PATIENCE_S)
        self.refusals -= 1
        if self.away or self.refusals >= 0:
            raise StoreError("store.url", "is away", "wait")
        self.done.append("tensors")
        return super().put(kind, data, suffix, day)

    def put_named(self, key: str, data: bytes) -> None:
        self.done.append("manifest")
        super().put_named(key, data)

    def delete(self, key: str) -> None:
        if not self.deletes:
            raise StoreError("store.access_key", "AccessDenied", "allow it to delete")
        self.done.append("deleted")
        super().delete(key)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "objects")


@pytest.fixture
def saver(settings: Config, store: Store) -> Iterator[CheckpointSaver]:
    kept = settings.model_copy(update={"learner": settings.learner.model_copy(update={"keep_checkpoints": 1})})
    made = CheckpointSaver(kept, store, 0, {}, Lineage(kept))
    yield made
    store.free.set()
    made.close()


def nothing() -> None:
    pass


def begin(saver: CheckpointSaver, made: Snapshot) -> None:
    saver.begin(made, {})


def test_updates_go_on_beside_an_upload_and_the_checkpoint_is_that_of_its_own_update(
    settings: Config, screens: Screens, store: Store, saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, seen, updates = LearnerState(settings), IdSet(["a/1"]), []
    made = windows(screens, settings, 5)

    def update() -> None:
        updates.append(update_of(state.u, made[state.u], state.watermarks, settings))
        fold(state, made[state.u], updates[-1], screens, settings)

    for _ in range(4):
        update()
    marks, digests = state.watermarks, state.digests()
    store.free.clear()
    begin(saver, snapshot(state, seen, chain(updates)))
    assert store.begun.acquire(timeout=PATIENCE_S)
    seen.add("a/2")
    update()
    assert (store.done, saver.has_ended, saver.saved) == ([], False, 0), "all this while nothing was stored"
    store.free.set()
    saver.settle(nothing)
    assert (store.done, saver.saved) == (["tensors", "manifest"], 4)
    log = [item for window in made for item in window]
    monkeypatch.setattr(room, "read_back", lambda _, wanted: [item for item in log if item.position in wanted])
    ranges = {(mark.topic, mark.partition): (0, mark.offset) for mark in marks}
    found = recover(settings, store, history=History.of(updates[:4]), log=Log(ranges, "ids"))
    assert (found.state.u, found.state.digests(), list(found.seen)) == (4, digests, ["a/1"])
    assert state.digests() != digests


def test_an_upload_that_fails_is_known_and_repeated_by_who_settles(
    settings: Config, store: Store, saver: CheckpointSaver
) -> None:
    store.away = True
    begin(saver, snapshot(LearnerState(settings), IdSet()))
    until(lambda: saver.has_ended)
    for _ in range(2):
        with pytest.raises(StoreError, match="is away"):
            saver.settle(nothing)
    assert not checkpoints(store, settings.run)
    store.away = False
    saver.settle(nothing)
    assert checkpoints(store, settings.run) == [0]
    saver.settle(nothing)
    assert store.done == ["tensors", "manifest"], "there is nothing left to upload"


def test_at_a_stop_a_store_that_fails_for_a_moment_is_asked_again(
    settings: Config, store: Store, saver: CheckpointSaver
) -> None:
    store.refusals = 2
    begin(saver, snapshot(LearnerState(settings), IdSet()))
    saver.settle_within(60.0, nothing)
    assert checkpoints(store, settings.run) == [0]
    store.away = True
    begin(saver, snapshot(LearnerState(settings), IdSet()))
    with pytest.raises(StoreError, match="is away"):
        saver.settle_within(0.0, nothing)


def test_a_store_that_refuses_to_delete_costs_room_and_no_checkpoint(
    settings: Config, store: Store, saver: CheckpointSaver
) -> None:
    state, store.deletes = LearnerState(settings), False
    for state.u in range(3):
        begin(saver, snapshot(state, IdSet()))
        saver.settle(nothing)
        saver.journalled()
    assert (saver.saved, checkpoints(store, settings.run)) == (2, [2, 1, 0])
    store.deletes = True
    for state.u in (3, 4):  # the first of them lists what the second may delete
        begin(saver, snapshot(state, IdSet()))
        saver.settle(nothing)
        saver.journalled()
    assert checkpoints(store, settings.run) == [4]


def test_adapters_that_may_not_be_deleted_keep_no_tensors(
    settings: Config, store: Store, saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise StoreError("store.access_key", "AccessDenied", "allow it to delete")

    monkeypatch.setattr(saving, "prune_adapters", refused)
    state = LearnerState(settings)
    for state.u in range(4):
        begin(saver, snapshot(state, IdSet()))
        saver.settle(nothing)
        saver.journalled()
    assert (checkpoints(store, settings.run), len(tensor_files(store, settings.run))) == ([3], 1)


def test_each_checkpoint_goes_on_with_the_versions_that_the_one_before_has_read(
    settings: Config, store: Store, saver: CheckpointSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Lineage] = []
    monkeypatch.setattr(saving, "prune_adapters", lambda config, store, lineage, *_: given.append(lineage))
    state = LearnerState(settings)
    for state.u in range(3):
        begin(saver, snapshot(state, IdSet()))
        saver.settle(nothing)
    assert [each is given[0] for each in given] == [True, True, True]


def test_what_waits_is_called_until_it_is_there(settings: Config, store: Store, saver: CheckpointSaver) -> None:
    store.free.clear()
    begin(saver, snapshot(LearnerState(settings), IdSet()))
    called = list[int]()

    def meanwhile() -> None:
        called.append(len(checkpoints(store, settings.run)))
        if len(called) == 3:
            store.free.set()

    saver.settle(meanwhile)
    assert called[:3] == [0, 0, 0]
    assert checkpoints(store, settings.run) == [0]


def test_what_a_newer_checkpoint_replaces_goes_once_that_is_there(
    settings: Config, store: Store, saver: CheckpointSaver
) -> None:
    state = LearnerState(settings)
    for state.u in range(3):
        begin(saver, snapshot(state, IdSet()))
        saver.settle(nothing)
        saver.journalled()
    assert checkpoints(store, settings.run) == [2]
    assert store.done == ["tensors", "manifest", *2 * ["tensors", "manifest", "deleted"]]


def test_refused_checkpoints_keep_all_others_until_they_are_deleted(settings: Config, store: Store) -> None:
    kept = settings.model_copy(update={"learner": settings.learner.model_copy(update={"keep_checkpoints": 1})})
    state = LearnerState(settings)
    saver = CheckpointSaver(kept, store, 0, {9: "the log ends before it"}, Lineage(kept))
    state.u = 9
    save_checkpoint(store, settings.run, *snapshot(state, IdSet()))
    state.u = 4
    begin(saver, snapshot(state, IdSet()))
    saver.settle(nothing)
    assert checkpoints(store, settings.run) == [9, 4], "pruning keeps the highest numbers"
    saver.delete_refused()
    assert checkpoints(store, settings.run) == [4]
    saver.close()


def test_a_refused_checkpoint_whose_update_was_redone_and_saved_stays(settings: Config, store: Store) -> None:
    state = LearnerState(settings)
    saver = CheckpointSaver(settings, store, 0, {9: "it is damaged"}, Lineage(settings))
    for state.u in (9, 10):
        begin(saver, snapshot(state, IdSet()))
        saver.settle(nothing)
    saver.delete_refused()
    assert checkpoints(store, settings.run) == [10, 9]
    saver.close()


def test_closing_waits_for_what_is_under_way_and_forgets_what_has_failed(
    settings: Config, store: Store, saver: CheckpointSaver
) -> None:
    store.free.clear()
    begin(saver, snapshot(LearnerState(settings), IdSet()))
    assert store.begun.acquire(timeout=PATIENCE_S)
    saver.abandon(store.free.set)
    assert (checkpoints(store, settings.run), saver.saved) == ([0], 0)
    store.away = True
    begin(saver, snapshot(LearnerState(settings), IdSet()))
    saver.abandon()
    store.away = False
    begin(saver, snapshot(LearnerState(settings), IdSet()))
    saver.close()
    assert store.done == 2 * ["tensors", "manifest"]


def test_what_is_recorded_names_the_base_model_that_is_loaded_whatever_becomes_of_its_files(
    settings: Config, tmp_path: Path
) -> None:
    """A journal of two fingerprints would be refused for good, with either model."""
    model = Path(shutil.copytree(settings.policy.base_model or SHIPPED, tmp_path / "base"))
    config = settings.model_copy(update={"policy": settings.policy.model_copy(update={"base_model": model})})
    begun, state, made = learning_fingerprint(config), LearnerState(config), list[Version]()
    (model / "config.json").write_text((model / "config.json").read_text().replace("{", "{\n", 1))
    assert learning_fingerprint(config) != begun
    publisher = Publisher(config, DirectoryStore(tmp_path / "objects"), made.append, (), lambda: 0)
    state.u = config.warmup.updates
    publisher.due(state)
    recorded = {state.fingerprint, snapshot(state, IdSet()).meta["config_fingerprint"], made[0].config_fingerprint}
    assert recorded == {begun}
