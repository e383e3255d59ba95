from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from distrl import config as settings_room
from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.learner import recover as room
from distrl.learner.choose_checkpoint import chain
from distrl.learner.fold import fold
from distrl.learner.recover import Log, recover, snapshot, unfolded
from distrl.learner.state import LearnerState
from distrl.store.checkpoints import save_checkpoint, tensor_files
from distrl.store.objects import ObjectStore, open_store
from distrl.types import LoggedTrajectory, Update

from learner.world import Screens, config, update_of, windows


def log_up_to(state: LearnerState) -> Log:
    """A log that ends where the state does."""
    return Log({(mark.topic, mark.partition): (0, mark.offset) for mark in state.watermarks}, "ids")


Run = tuple[LearnerState, list[Update], list[list[LoggedTrajectory]]]


@pytest.fixture
def run(settings: Config, screens: Screens) -> Run:
    state, updates, records = LearnerState(settings), [], windows(screens, settings, 5)
    for window in records:
        updates.append(update_of(state.u, window, state.watermarks, settings))
        fold(state, window, updates[-1], screens, settings)
    return state, updates, records


@pytest.fixture
def store(settings: Config, run: Run, tmp_path: Path) -> ObjectStore:
    """With a checkpoint of the run's end, of the log `ids`."""
    made, (state, updates, _) = open_store(settings_room.StoreSettings(url=f"file://{tmp_path}")), run
    save_checkpoint(made, settings.run, *snapshot(state, IdSet(), chain(updates), log_id="ids"))
    return made


def test_checkpoint_in_a_store_and_back(
    settings: Config, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, updates, records = run
    store = open_store(settings_room.StoreSettings(url=f"file://{tmp_path}"))
    history, kept = History.of(updates), log_up_to(state)
    assert recover(settings, store, history=history, log=kept).state.u == 0
    save_checkpoint(store, settings.run, *snapshot(state, IdSet(["a/1", "a/é\n"]), chain(updates)))
    log = [item for window in records for item in window]
    monkeypatch.setattr(room, "read_back", lambda _, wanted: [item for item in log if item.position in wanted])
    found = recover(settings, store, history=history, log=kept)
    assert found.state.digests() == state.digests()
    assert (found.state.u, found.state.watermarks) == (state.u, state.watermarks)
    assert list(found.seen) == ["a/1", "a/é\n"]


def test_a_checkpoint_of_other_settings_is_refused(base_directory: Path, run: Run, tmp_path: Path) -> None:
    store = open_store(settings_room.StoreSettings(url=f"file://{tmp_path}"))
    state, updates, _ = run
    other = config(base_directory, "algorithm.gamma=0.5")
    save_checkpoint(store, other.run, *snapshot(LearnerState(other), IdSet()))
    with pytest.raises(ConfigError, match="other settings"):
        recover(config(base_directory), store, history=History.of(updates), log=log_up_to(state))


def test_a_checkpoint_of_another_base_model_is_refused(settings: Config, run: Run) -> None:
    state = run[0]
    with pytest.raises(StoreError, match="base model"):
        LearnerState.restore(settings, state.meta() | {"base_model_sha256": "f" * 64}, state.tensors(), ())


def test_only_what_the_checkpoint_has_not_folded_is_redone(settings: Config, run: Run) -> None:
    state, updates, _ = run
    assert unfolded(updates, LearnerState(settings), settings) == updates
    assert unfolded(updates, state, settings) == []
    more = replace(updates[-1], u=5)
    assert unfolded([*updates, more], state, settings) == [more]


@pytest.mark.parametrize("fault", ["short", "gap", "marks", "settings"])
def test_a_journal_that_is_not_this_checkpoints_is_refused(settings: Config, run: Run, fault: str) -> None:
    state, updates, _ = run
    if fault == "short":
        updates = updates[:3]
    if fault == "gap":
        updates = [*updates[:2], *updates[3:]]
    if fault == "marks":
        updates = [*updates[:-1], replace(updates[-1], watermarks=updates[-2].watermarks)]
    if fault == "settings":
        updates = [replace(update, config_fingerprint="0" * 64) for update in updates]
    with pytest.raises(ConfigError if fault == "settings" else BrokerError):
        unfolded(updates, state, settings)


def test_a_buffer_that_spans_too_much_of_the_log_is_refused_with_the_number(base_directory: Path, run: Run) -> None:
    whole = config(base_directory)
    narrow = whole.model_copy(update={"learner": whole.learner.model_copy(update={"rebuild_window": 4})})
    with pytest.raises(ConfigError, match=r"learner\.rebuild_window to 6 or more"):
        room.read_back(narrow, room.needed(run[0].meta()))


def test_a_buffer_that_comes_to_span_too_much_is_warned_of_before_a_restart_needs_it(
    base_directory: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    whole = config(base_directory)
    for window, warned in ((whole.learner.rebuild_window, False), (7, True)):
        learner = whole.learner.model_copy(update={"rebuild_window": window})
        room.warn_if_window_is_narrow(whole.model_copy(update={"learner": learner}), run[0])
        assert ("set it to" in caplog.text) == warned


def test_checkpoints_of_a_run_on_another_broker_are_neither_begun_with_nor_deleted(
    settings: Config, run: Run, store: ObjectStore
) -> None:
    """An empty broker beside the store of a run: `distrl up` in another folder, a wrong kafka.bootstrap."""
    state, _, _ = run
    with pytest.raises(BrokerError, match="made again or mirrored"):
        recover(settings, store, history=History(), log=Log({}, "other ids"))
    with pytest.raises(BrokerError, match="made again or mirrored"):  # also where a learner was at work there
        recover(settings, store, history=History(1, log_id="other ids"), log=Log({}, "other ids"))
    lost = recover(settings, store, history=History(), log=Log({}, "ids"))
    assert (lost.state.u, set(lost.refused)) == (0, {state.u}), "a whole log that was lost is no other log"


def test_a_checkpoint_with_a_damaged_tensor_is_refused_so_that_pruning_does_not_count_it(
    settings: Config, run: Run, store: ObjectStore, tmp_path: Path
) -> None:
    state, updates, _ = run
    for key in tensor_files(store, settings.run):
        (tmp_path / key).write_bytes(b"rotten")
    found = recover(settings, store, history=History.of(updates), log=log_up_to(state))
    assert (found.state.u, set(found.refused)) == (0, {state.u})


@pytest.mark.parametrize("meta", [{}, {"u": "nine"}, {"u": 9, "watermarks": [["only a topic"]]}])
def test_a_checkpoint_whose_manifest_cannot_be_read_is_refused_so_that_pruning_does_not_count_it(
    settings: Config, run: Run, store: ObjectStore, meta: dict[str, object]
) -> None:
    """As one of a later version, after a roll-back: each checkpoint of this version would be deleted for it at once."""
    state, updates, _ = run
    save_checkpoint(store, settings.run, state.u, {}, meta)
    found = recover(settings, store, history=History.of(updates), log=log_up_to(state))
    assert (found.state.u, set(found.refused)) == (0, {state.u})
