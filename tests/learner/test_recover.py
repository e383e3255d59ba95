from __future__ import annotations

from collections.abc import Sequence
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
from distrl.learner.recover import FORMAT, Log, recover, snapshot, unfolded
from distrl.learner.state import LearnerState
from distrl.store.checkpoints import checkpoint_meta, save_checkpoint, tensor_files
from distrl.store.objects import ObjectStore, open_store
from distrl.types import LoggedTrajectory, Skipped, Update

from learner.world import TRAJECTORIES, Screens, config, update_of, windows


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
    state, updates, _ = run
    with pytest.raises(BrokerError, match="made again or mirrored"):
        recover(settings, store, history=History(), log=Log({}, "other ids"))
    with pytest.raises(BrokerError, match="made again or mirrored"):  # also where a learner was at work there
        recover(settings, store, history=History(tuple(updates[:1]), log_id="other ids"), log=Log({}, "other ids"))
    lost = recover(settings, store, history=History(), log=Log({}, "ids"))
    assert (lost.state.u, set(lost.refused)) == (0, {state.u}), "a whole log that was lost is no other log"


def voided_from(u: int, updates: Sequence[Update]) -> Update:
    """The journal's line of a skip."""
    left_out = Skipped(TRAJECTORIES, 0, 2, "ab", "lost")
    marks, settings = updates[u - 1].watermarks, updates[u - 1].config_fingerprint
    return Update(u, marks, settings, 0, log_id="ids", void="lost", skipped=(left_out,))


def test_a_checkpoint_of_void_updates_is_refused_alone_where_a_run_was_copied_to(
    settings: Config, run: Run, store: ObjectStore
) -> None:
    """A copy keeps the topic ids of its source in journal and manifests; the topics there have others."""
    state, updates, _ = run
    updates = [replace(each, log_id="ids") for each in updates]
    there = replace(log_up_to(state), id="other ids")
    for after in ([], updates[2:4]):  # folded again, in part
        history = History.of([*updates, voided_from(2, updates), *after])
        found = recover(settings, store, history=history, log=there)
        assert (found.state.u, set(found.refused)) == (0, {5})


def test_a_checkpoint_that_the_journal_never_had_is_another_runs_also_beside_void_lines(
    settings: Config, run: Run, store: ObjectStore
) -> None:
    """Of a source that goes on, where copy and source share a store: to refuse it alone would delete it."""
    state, updates, _ = run
    there = replace(log_up_to(state), id="other ids")
    named = [replace(each, log_id="ids") for each in updates]
    others = [*named[:4], replace(named[4], window_sha256="ab")]  # the copy has gone on by itself
    for before in (named[:4], others):
        with pytest.raises(BrokerError, match="was copied or mirrored here, and is not the whole journal"):
            recover(settings, store, history=History.of([*before, voided_from(2, named)]), log=there)


def test_a_copy_whose_journal_lost_its_tail_is_told_from_topics_that_were_made_again(
    settings: Config, run: Run, store: ObjectStore
) -> None:
    """Beside a checkpoint that came with it; the trajectories are whole."""
    state, updates, _ = run
    there = replace(log_up_to(state), id="other ids")
    named = [replace(each, log_id="ids") for each in updates]
    with pytest.raises(BrokerError, match=r"was copied or mirrored here, .* the journal ends after 3 updates"):
        recover(settings, store, history=History.of(named[:3]), log=there)
    made_again = Log(dict.fromkeys(there.ranges, (0, 1)), "other ids")
    with pytest.raises(BrokerError, match="made again or mirrored"):  # beside a journal that is whole
        recover(settings, store, history=History.of(named), log=made_again)
    gone_on = [*named[:3], replace(updates[3], window_sha256="ab", log_id="other ids")]
    with pytest.raises(BrokerError, match="made again or mirrored"):  # nothing says that it is a copy
        recover(settings, store, history=History.of(gone_on), log=there)


def test_a_void_line_excuses_no_log_that_lacks_records(settings: Config, run: Run, store: ObjectStore) -> None:
    _, updates, _ = run
    history = History.of([*updates, voided_from(2, updates), *updates[2:]])
    with pytest.raises(BrokerError, match="made again or mirrored"):
        recover(settings, store, history=history, log=Log({}, "other ids"))


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


def test_a_checkpoint_of_a_later_format_is_refused_however_much_of_its_manifest_can_be_read(
    settings: Config, run: Run, store: ObjectStore
) -> None:
    state, updates, _ = run
    meta = dict(checkpoint_meta(store, settings.run, state.u) or {})
    assert meta.pop("format") == FORMAT
    del meta["config_fingerprint"]
    save_checkpoint(store, settings.run, state.u, {}, meta | {"format": FORMAT + 1})
    found = recover(settings, store, history=History.of(updates), log=log_up_to(state))
    assert (found.state.u, set(found.refused)) == (0, {state.u})
