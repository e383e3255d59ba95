from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from distrl import config as settings_room
from distrl.broker.identity import IdSet
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.learner import recover as room
from distrl.learner.fold import fold
from distrl.learner.recover import checkpoint, recover, unfolded
from distrl.learner.state import LearnerState
from distrl.store.objects import open_store
from distrl.types import LoggedTrajectory, Update

from learner.world import Screens, base_of, config, update_of, windows

Run = tuple[LearnerState, list[Update], list[list[LoggedTrajectory]]]


@pytest.fixture
def run(settings: Config, screens: Screens) -> Run:
    state, updates, records = LearnerState.create(base_of(settings), settings), [], windows(screens, settings, 5)
    for window in records:
        updates.append(update_of(state.u, window, state.watermarks, settings))
        fold(state, window, updates[-1], screens, settings)
    return state, updates, records


def test_checkpoint_in_a_store_and_back(
    settings: Config, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, _, records = run
    store = open_store(settings_room.Store(url=f"file://{tmp_path}"))
    assert recover(settings, store).state.u == 0
    checkpoint(settings, store, state, IdSet(["a/1", "a/é\n"]))
    log = [item for window in records for item in window]
    monkeypatch.setattr(room, "read_back", lambda _, wanted: [item for item in log if item.position in wanted])
    found = recover(settings, store)
    assert found.state.digests() == state.digests()
    assert (found.state.u, found.state.watermarks) == (state.u, state.watermarks)
    assert list(found.seen) == ["a/1", "a/é\n"]


def test_a_checkpoint_of_other_settings_is_refused(base_directory: Path, run: Run, tmp_path: Path) -> None:
    store = open_store(settings_room.Store(url=f"file://{tmp_path}"))
    checkpoint(config(base_directory, "aride.gamma=0.5"), store, run[0], IdSet())
    with pytest.raises(ConfigError, match="other settings"):
        recover(config(base_directory), store)


def test_a_checkpoint_of_another_base_model_is_refused(settings: Config, run: Run) -> None:
    state = run[0]
    with pytest.raises(StoreError, match="base model"):
        LearnerState.restore(
            base_of(settings), settings, state.meta() | {"base_model_sha256": "f" * 64}, state.tensors(), ()
        )


def test_only_what_the_checkpoint_has_not_folded_is_redone(settings: Config, run: Run) -> None:
    state, updates, _ = run
    assert unfolded(updates, LearnerState.create(base_of(settings), settings), settings) == updates
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
    narrow = config(base_directory, "learner.rebuild_window=4")
    with pytest.raises(ConfigError, match=r"learner\.rebuild_window to 6 or more"):
        room.read_back(narrow, room.needed(run[0].meta()))
