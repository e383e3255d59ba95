"""Adapters of a run: those that were pruned are reported as such, and those of others are never deleted."""

from __future__ import annotations

from pathlib import Path

import factories
import pytest
from distrl.store.adapters import adapters_bytes, copy_pruned, delete_adapters, forget_pruned, put_adapter, read_adapter
from distrl.store.directory import DirectoryStore
from distrl.store.objects import MissingObjectError
from distrl.types import Version

from .test_checkpoints import Crash, CrashingStore

SETTINGS = "learner.keep_adapters=1"


def published(store: DirectoryStore, run: str, count: int) -> list[Version]:
    return [
        factories.version(number, adapter=put_adapter(store, run, b"weights %d" % number)) for number in range(count)
    ]


def test_a_pruned_adapter_is_reported_with_the_setting_and_a_lost_one_as_missing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    versions = published(store, "demo", 4)
    assert delete_adapters(store, "demo", versions[:2], SETTINGS) == 2
    for gone in versions[:2]:
        with pytest.raises(MissingObjectError, match=r"version \d of run demo: was pruned by learner.keep_adapters=1"):
            read_adapter(store, "demo", gone)
    assert [read_adapter(store, "demo", each) for each in versions[2:]] == [b"weights 2", b"weights 3"]
    store.delete(versions[3].adapter.key)
    with pytest.raises(MissingObjectError, match="is not in"):
        read_adapter(store, "demo", versions[3])
    copied = DirectoryStore(tmp_path / "copied")
    copy_pruned(store, copied, "demo")
    with pytest.raises(MissingObjectError, match="was pruned by"):
        read_adapter(copied, "demo", versions[0])
    forget_pruned(store, "demo")
    with pytest.raises(MissingObjectError, match="is not in"):
        read_adapter(store, "demo", versions[0])


def test_the_same_weights_of_another_run_stay_and_so_do_shared_ones(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    mine, other = published(store, "demo", 2), published(store, "demo2", 2)
    shared = factories.version(2, adapter=store.put("adapters", b"weights 0", "safetensors"))
    assert delete_adapters(store, "demo", [*mine, *other, shared], SETTINGS) == 2
    assert [read_adapter(store, "demo2", each) for each in other] == [b"weights 0", b"weights 1"]
    assert read_adapter(store, "demo", shared) == b"weights 0"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("changes", range(4))
def test_a_kill_between_any_two_changes_leaves_no_adapter_that_is_missing_in_silence(
    tmp_path: Path, changes: int, after: bool
) -> None:
    versions = published(DirectoryStore(tmp_path), "demo", 4)
    with pytest.raises(Crash):
        delete_adapters(CrashingStore(tmp_path, changes, after=after), "demo", versions[:3], SETTINGS)
    store = DirectoryStore(tmp_path)
    there = set(store.list("adapters/demo/"))
    for each in versions[:3]:
        if each.adapter.key in there:
            assert read_adapter(store, "demo", each) == b"weights %d" % each.version
        else:
            with pytest.raises(MissingObjectError, match=f"pruned by {SETTINGS}"):
                read_adapter(store, "demo", each)
    delete_adapters(store, "demo", versions[:3], SETTINGS)
    for each in versions[:3]:
        with pytest.raises(MissingObjectError, match="pruned"):
            read_adapter(store, "demo", each)
    assert read_adapter(store, "demo", versions[3]) == b"weights 3"


def test_bytes_are_those_that_are_there(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    shared = factories.version(2, adapter=store.put("adapters", b"12345", "safetensors"))
    versions = [*published(store, "demo", 2), shared]
    assert adapters_bytes(store, "demo", versions) == 9 + 9 + 5
    delete_adapters(store, "demo", versions[:2], SETTINGS)
    forget_pruned(store, "demo")
    assert adapters_bytes(store, "demo", versions) == 5
