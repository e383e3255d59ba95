"""Checkpoints: a crash at any point of saving or pruning leaves a whole one to continue from."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from distrl.errors import StoreError
from distrl.store import checkpoints
from distrl.store.checkpoints import copy_checkpoints, latest_checkpoint, prune, save_checkpoint, tensor_files
from distrl.store.directory import DirectoryStore
from distrl.types import ObjectRef
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


class Crash(BaseException):
    """The process ends here."""


class CrashingStore(DirectoryStore):
    """A directory store whose process ends before its n-th change, or right after it."""

    def __init__(self, root: Path, changes: int, *, after: bool) -> None:
        super().__init__(root)
        self.left = changes
        self.after = after

    def _counted(self, change: Any, *args: Any) -> Any:
        self.left -= 1
        if self.left < 0 and not self.after:
            raise Crash
        result = change(*args)
        if self.left < 0:
            raise Crash
        return result

    def put(self, kind: str, data: bytes, suffix: str, day: str | None = None) -> ObjectRef:
        ref: ObjectRef = self._counted(super().put, kind, data, suffix, day)
        return ref

    def put_named(self, key: str, data: bytes) -> None:
        self._counted(super().put_named, key, data)

    def delete(self, key: str) -> None:
        self._counted(super().delete, key)


def save(store: DirectoryStore, u: int) -> None:
    save_checkpoint(store, "demo", u, {"w": np.full(4, u), "v": np.full(4, -u)}, {"u": u, "marks": [u, u + 1]})


def latest_u(store: DirectoryStore) -> int | None:
    found = latest_checkpoint(store, "demo")
    if found is None:
        return None
    meta, tensors = found
    u: int = meta["u"]
    assert tensors["w"].tolist() == [u] * 4
    assert tensors["v"].tolist() == [-u] * 4
    return u


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "objects")


def test_no_checkpoint_is_none(store: DirectoryStore) -> None:
    assert latest_checkpoint(store, "demo") is None
    assert prune(store, "demo", keep=1, prunable=tensor_files(store, "demo")) == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=20).filter(lambda name: name != "__metadata__"),
        hnp.arrays(
            st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
        max_size=5,
    ),
    st.booleans(),
)
def test_tensors_come_back_bit_for_bit(tmp_path: Path, tensors: dict[str, Any], turned: bool) -> None:
    store = DirectoryStore(tmp_path / "objects")
    if turned:  # a view whose memory is in another order than its numbers
        tensors = {name: array.T for name, array in tensors.items()}
    meta = {"text": "ρ", "numbers": [1, 2.5, None, True], "nested": {"a": {}}}
    save_checkpoint(store, "demo", 0, tensors, meta)
    found_meta, found = latest_checkpoint(store, "demo") or ({}, {})
    assert found_meta == meta
    assert found.keys() == tensors.keys()
    for name, array in tensors.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


def test_what_is_loaded_can_be_trained_on_in_place(store: DirectoryStore) -> None:
    save(store, 1)
    _, tensors = latest_checkpoint(store, "demo") or ({}, {})
    tensors["w"] += 1
    assert tensors["w"].tolist() == [2] * 4


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("changes", range(2))
def test_a_crash_at_any_point_of_saving_leaves_a_whole_latest(
    tmp_path: Path, store: DirectoryStore, changes: int, after: bool
) -> None:
    save(store, 1)
    with pytest.raises(Crash):
        save(CrashingStore(tmp_path / "objects", changes, after=after), 2)
    complete = changes == 1 and after
    assert latest_u(store) == (2 if complete else 1)
    save(store, 2)
    assert latest_u(store) == 2


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("changes", range(6))
def test_a_crash_at_any_point_of_pruning_leaves_what_is_kept(
    tmp_path: Path, store: DirectoryStore, changes: int, after: bool
) -> None:
    for u in range(1, 6):
        save(store, u)
    crashing = CrashingStore(tmp_path / "objects", changes, after=after)
    with pytest.raises(Crash):
        prune(crashing, "demo", keep=2, prunable=tensor_files(store, "demo"))
    assert latest_u(store) == 5
    prune(store, "demo", keep=2, prunable=tensor_files(store, "demo"))
    assert len(list(store.list("runs/demo/checkpoints/"))) == 2
    assert len(list(store.list("runs/demo/tensors/"))) == 2
    store.delete("runs/demo/checkpoints/00000005.json")
    assert latest_u(store) == 4


def test_a_full_disk_is_an_error_and_the_old_checkpoint_stays(tmp_path: Path, store: DirectoryStore) -> None:
    save(store, 1)
    child = f"""
import resource, numpy as np
from pathlib import Path
from distrl.errors import StoreError
from distrl.store.checkpoints import save_checkpoint
from distrl.store.directory import DirectoryStore
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    save_checkpoint(DirectoryStore(Path({str(tmp_path / "objects")!r})), "demo", 2, {{"w": np.zeros(9000)}}, {{}})
except StoreError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, timeout=60, check=False)
    assert "store.url" in done.stdout, done.stderr
    assert "free space" in done.stdout
    assert latest_u(store) == 1


def damage(store: DirectoryStore, u: int, how: str) -> None:
    """Spoil checkpoint `u` in one way."""
    manifest = store.root / f"runs/demo/checkpoints/{u:08d}.json"
    content = json.loads(manifest.read_text())
    tensors = store.root / content["body"]["files"][0]["key"]
    data = tensors.read_bytes()
    if how == "tensor file gone":
        tensors.unlink()
    elif how == "tensor file cut":
        tensors.write_bytes(data[:-1])
    elif how == "tensor bit flipped":
        tensors.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "manifest cut":
        manifest.write_text(manifest.read_text()[:-20])
    elif how == "manifest empty":
        manifest.write_bytes(b"")
    elif how == "manifest no mapping":
        manifest.write_text("[1, 2]")
    elif how == "manifest deep":
        manifest.write_text("[" * 200_000)
    elif how == "manifest edited":
        content["body"]["meta"]["u"] = u + 1
        manifest.write_text(json.dumps(content))
    elif how == "manifest of another update":
        manifest.write_bytes((store.root / "runs/demo/checkpoints/00000001.json").read_bytes())
    elif how == "manifest names other files":
        content["body"]["files"][0]["key"] = "../../../../etc/passwd"
        content["sha256"] = checkpoints._digest(content["body"])
        manifest.write_text(json.dumps(content))
    else:
        raise AssertionError(how)


HOWS = [
    "tensor file gone", "tensor file cut", "tensor bit flipped", "manifest cut", "manifest empty",
    "manifest no mapping", "manifest deep", "manifest edited", "manifest of another update",
    "manifest names other files",
]  # fmt: skip


@pytest.mark.parametrize("how", HOWS)
def test_a_damaged_checkpoint_is_skipped_with_a_warning(
    store: DirectoryStore, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    for u in (1, 2, 3):
        save(store, u)
    damage(store, 3, how)
    assert latest_u(store) == 2
    assert "checkpoint 3 of demo is skipped" in caplog.text


@pytest.mark.parametrize("how", [how for how in HOWS if how not in ("tensor file cut", "tensor bit flipped")])
def test_pruning_never_deletes_the_last_whole_checkpoint(store: DirectoryStore, how: str) -> None:
    for u in (1, 2, 3):
        save(store, u)
    damage(store, 3, how)
    prune(store, "demo", keep=1, prunable=tensor_files(store, "demo"))
    assert latest_u(store) == 2


def test_a_store_that_fails_is_an_error_and_not_an_older_checkpoint(store: DirectoryStore) -> None:
    class Unreachable(DirectoryStore):
        def get(self, ref: ObjectRef) -> bytes:
            raise StoreError("store.url", "no endpoint answers", "start it")

    save(store, 1)
    with pytest.raises(StoreError, match="no endpoint answers"):
        latest_checkpoint(Unreachable(store.root), "demo")


def test_runs_do_not_share_what_pruning_deletes(store: DirectoryStore) -> None:
    tensors = {"w": np.arange(3)}
    for run in ("one", "two"):
        save_checkpoint(store, run, 1, tensors, {"run": run})
    save_checkpoint(store, "one", 2, {"w": np.zeros(3)}, {})
    prune(store, "one", keep=1, prunable=tensor_files(store, "one"))
    meta, found = latest_checkpoint(store, "two") or ({}, {})
    assert meta == {"run": "two"}
    assert found["w"].tolist() == [0, 1, 2]


def test_tensor_files_that_a_crash_left_are_pruned_and_shared_ones_kept(store: DirectoryStore) -> None:
    save_checkpoint(store, "demo", 1, {"w": np.arange(3)}, {})
    save_checkpoint(store, "demo", 2, {"w": np.arange(3)}, {})
    orphan = store.put("runs/demo/tensors", b"never named", "safetensors")
    assert prune(store, "demo", keep=1, prunable=tensor_files(store, "demo")) == 2
    assert orphan.key not in set(store.list("runs/"))
    assert latest_checkpoint(store, "demo") is not None


def test_a_fenced_learner_that_still_prunes_spares_what_its_successor_is_saving(store: DirectoryStore) -> None:
    for u in (1, 2):
        save(store, u)
    known = tensor_files(store, "demo")  # listed before the update whose append was the last to succeed

    class FencedWhileSaving(DirectoryStore):
        def put_named(self, key: str, data: bytes) -> None:
            """The successor has uploaded its tensors, and the fenced one prunes before their manifest is there."""
            prune(store, "demo", keep=1, prunable=known)
            super().put_named(key, data)

    save(FencedWhileSaving(store.root), 3)
    assert latest_u(store) == 3
    assert prune(store, "demo", keep=1, prunable=tensor_files(store, "demo")) == 2
    assert latest_u(store) == 3


def test_many_tensors_are_spread_over_files(store: DirectoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "FILE_BYTES", 100)
    tensors = {f"w{i}": np.full(5, i) for i in range(7)}
    save_checkpoint(store, "demo", 1, tensors, {})
    assert len(list(store.list("runs/demo/tensors/"))) == 4
    _, found = latest_checkpoint(store, "demo") or ({}, {})
    assert {name: array.tolist() for name, array in found.items()} == {f"w{i}": [i] * 5 for i in range(7)}


def test_update_numbers_past_eight_digits_are_in_order(store: DirectoryStore) -> None:
    for u in (99_999_999, 100_000_000):
        save(store, u)
    assert latest_u(store) == 100_000_000


def objects_of(store: DirectoryStore) -> Iterator[tuple[str, bytes | None]]:
    return ((key, store.get_named(key)) for key in store.list(""))


def test_equal_checkpoints_are_equal_bytes(tmp_path: Path) -> None:
    one, two = (DirectoryStore(tmp_path / name) for name in ("one", "two"))
    save_checkpoint(one, "demo", 1, {"a": np.zeros(2), "b": np.ones(3)}, {"x": 1, "y": 2})
    save_checkpoint(two, "demo", 1, {"b": np.ones(3), "a": np.zeros(2)}, {"y": 2, "x": 1})
    assert list(objects_of(one)) == list(objects_of(two))


@pytest.mark.parametrize("bad", [np.array(["text"]), np.array([object()])])
def test_what_only_pickle_could_write_is_refused(store: DirectoryStore, bad: Any) -> None:
    with pytest.raises(StoreError, match="safetensors cannot"):
        save_checkpoint(store, "demo", 1, {"w": bad}, {})
    assert list(store.list("")) == []


def test_meta_that_is_no_json_is_refused_before_anything_is_written(store: DirectoryStore) -> None:
    for meta in ({"x": float("nan")}, {"x": b"bytes"}):
        with pytest.raises((TypeError, ValueError)):
            save_checkpoint(store, "demo", 1, {"w": np.zeros(1)}, meta)
    assert list(store.list("")) == []


class Learning(DirectoryStore):
    """A store whose learner saves and prunes as soon as somebody reads a tensor file."""

    next_u = 4

    def get(self, ref: ObjectRef) -> bytes:
        if ref.key.endswith(".safetensors") and self.next_u <= 6:
            us, self.next_u = range(self.next_u, self.next_u + 3), 7
            there = DirectoryStore(self.root)
            for u in us:
                save(there, u)
            prune(there, "demo", 2, tensor_files(there, "demo"))
        return super().get(ref)


def test_a_copy_beside_a_learner_that_prunes_all_that_was_there_has_a_checkpoint_all_the_same(tmp_path: Path) -> None:
    source, to = Learning(tmp_path / "source"), DirectoryStore(tmp_path / "to")
    for u in (2, 3):
        save(DirectoryStore(tmp_path / "source"), u)
    copied = copy_checkpoints(source, to, "demo")
    assert (latest_u(to), checkpoints.checkpoints(to, "demo")) == (6, [6, 5])
    assert copied == len(list(to.list(""))), "each object once"


def test_a_damaged_checkpoint_does_not_keep_the_others_out_of_a_copy(tmp_path: Path) -> None:
    source, to = DirectoryStore(tmp_path / "source"), DirectoryStore(tmp_path / "to")
    for u in (1, 2):
        save(source, u)
    _, files = checkpoints._read_manifest(source, "demo", 2)
    (source.root / files[0].key).write_bytes(b"rotten")
    copy_checkpoints(source, to, "demo")
    assert checkpoints.checkpoints(to, "demo") == [1]
    (source.root / files[0].key).unlink()
    (source.root / checkpoints._read_manifest(source, "demo", 1)[1][0].key).unlink()
    assert copy_checkpoints(source, DirectoryStore(tmp_path / "none"), "demo") == 0, "and it ends"


def test_a_name_that_is_no_key_stops_no_pruning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = DirectoryStore(tmp_path)
    for u in (1, 2):
        save(store, u)
    (tmp_path / "runs/demo/tensors/00 (copy).safetensors").write_bytes(b"x")
    assert prune(store, "demo", 1, tensor_files(store, "demo")) > 0
    assert latest_u(store) == 2
    assert "00 (copy).safetensors' in the store was not written by DistRL" in caplog.text
