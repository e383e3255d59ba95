from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from distrl.errors import ConfigError, StoreError
from distrl.policy.feature_rows import NOWHERE
from distrl.policy.feature_store import BLOCK, FeatureFileError, FeatureStore
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.sampled_from("abcdefgh")
SHAPES = st.sampled_from([(1,), (3, 5), (700, 3), (0, 4)])
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
CHANGES = st.lists(st.tuples(NAMES, st.none() | st.tuples(SHAPES, DTYPES)), max_size=40)


def tensor(seed: int, shape: tuple[int, ...] = (100, 8), dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def same(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.dtype == two.dtype and torch.equal(one, two)


@given(changes=CHANGES, most=st.sampled_from([0, 60, 9000, 1 << 30]))
def test_it_keeps_what_a_dict_keeps_wherever_it_lies(
    changes: list[tuple[str, tuple[tuple[int, ...], torch.dtype] | None]], most: int
) -> None:
    store, expected = FeatureStore(most), dict[str, torch.Tensor]()
    for seed, (name, what) in enumerate(changes):
        if expected.pop(name, None) is not None:
            store.drop(name)
        if what is not None:
            expected[name] = tensor(seed, *what)
            store.put(name, expected[name].clone())
        assert store.names() == expected.keys()
        assert len(store) == len(expected)
        assert all(same(store.get(each), value) for each, value in expected.items())
        handles = store.handles(expected)
        assert store.holds(handles).tolist() == [handle != NOWHERE for handle in handles]
        for each, handle in zip(expected, handles, strict=True):
            found = store.gather(np.array([handle, handle]))
            assert found is None if handle == NOWHERE else same(found, torch.stack([expected[each]] * 2))
        assert store.held_bytes <= most
    assert "never put" not in store
    with pytest.raises(KeyError):
        store.get("never put")


def test_memory_is_filled_first_and_what_leaves_makes_room(tmp_path: Path) -> None:
    size = tensor(0).nbytes
    store = FeatureStore(2 * size, tmp_path)
    for seed in range(4):
        store.put(str(seed), tensor(seed))
    assert (store.held_bytes, store.in_file) == (2 * size, 2)
    store.drop("0")
    store.put("4", tensor(4))
    assert (store.held_bytes, store.in_file) == (2 * size, 2)
    assert all(same(store.get(str(seed)), tensor(seed)) for seed in range(1, 5))


def test_a_handle_holds_until_its_feature_is_dropped_and_in_no_other_store() -> None:
    store, other = FeatureStore(1 << 20), FeatureStore(1 << 20)
    for seed in range(3):
        store.put(str(seed), tensor(seed))
        other.put(str(seed), tensor(seed))
    handles = store.handles(["2", "0", "2", "unknown"])
    assert handles[3] == NOWHERE
    found = store.gather(handles[:3])
    store.drop("0")
    store.put("takes its row", tensor(7))
    assert store.held_bytes == 3 * tensor(0).nbytes
    assert found is not None
    assert same(found, torch.stack([tensor(2), tensor(0), tensor(2)])), "a copy"
    assert store.holds(handles).tolist() == [True, False, True, False]
    assert store.gather(handles[:3]) is None
    assert not other.holds(handles).any()
    assert FeatureStore(0).gather(handles[:1]) is None


def test_without_so_much_memory_features_are_kept_one_by_one() -> None:
    store = FeatureStore(1 << 60)
    store.put("0", tensor(0))
    assert same(store.get("0"), tensor(0))
    assert (store.held_bytes, store.in_file) == (tensor(0).nbytes, 0)
    assert store.handles(["0"]).tolist() == [NOWHERE]


def test_places_in_the_file_are_used_again(tmp_path: Path) -> None:
    store = FeatureStore(0, tmp_path)
    for seed in range(50):
        store.put(str(seed), tensor(seed))
        if seed >= 3:
            store.drop(str(seed - 3))
    assert store.file_bytes == 4 * BLOCK
    assert all(same(store.get(str(seed)), tensor(seed)) for seed in range(47, 50))


def test_a_tensor_that_is_a_view_is_kept_as_it_looks(tmp_path: Path) -> None:
    store, whole = FeatureStore(0, tmp_path), tensor(1, (6, 8))
    store.put("turned", whole.T[2:])
    assert same(store.get("turned"), whole.T[2:])


def test_the_file_has_no_name_and_a_kill_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, time, torch; from pathlib import Path; from distrl.policy.feature_store import FeatureStore\n"
        "store = FeatureStore(0, Path(sys.argv[1])); store.put('a', torch.ones(1 << 20)); print('put', flush=True)\n"
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "made")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "put\n"
        opened = [os.stat(f"/proc/{child.pid}/fd/{fd}").st_size for fd in os.listdir(f"/proc/{child.pid}/fd")]
        assert 4 << 20 in opened, "it is on disk"
        os.kill(child.pid, signal.SIGKILL)
    assert list((tmp_path / "made").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"learner\.features_directory: .*cannot be written \(.+\)\n  hint: name"):
        FeatureStore(1 << 30, tmp_path / "file")


def test_a_full_disk_is_reported_with_the_settings_and_what_was_kept_stays(tmp_path: Path) -> None:
    store = FeatureStore(0, tmp_path)
    store.put("fits", tensor(0))
    with files_of_at_most(BLOCK + 100), pytest.raises(StoreError, match=r"learner\.features_directory") as raised:
        store.put("too much", tensor(1))
    assert "learner.features_mb" in raised.value.hint
    assert store.names() == {"fits"}
    assert same(store.get("fits"), tensor(0))
    store.put("too much", tensor(1))
    assert same(store.get("too much"), tensor(1)), "once there is room"


def test_a_file_that_was_cut_off_is_reported_and_read_as_nothing_else(tmp_path: Path) -> None:
    store = FeatureStore(0, tmp_path)
    store.put("gone", tensor(0))
    (file,) = (int(fd) for fd in os.listdir("/proc/self/fd") if _is_below(fd, tmp_path))
    os.truncate(file, 100)
    with pytest.raises(FeatureFileError, match=r"learner\.features_directory"):
        store.get("gone")


def _is_below(fd: str, folder: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(str(folder))
    except FileNotFoundError:
        return False


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing past `size` fails, as on a full disk. Python ignores the signal that comes with it."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
