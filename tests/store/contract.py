"""What every object store does: one suite, which tests/store runs on a directory and tests/integration on S3.

A class that inherits gives the fixtures `store` (an empty, writable ObjectStore) and `spoil`.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from distrl.errors import StoreError
from distrl.store.checkpoints import latest_checkpoint, prune, save_checkpoint, tensor_files
from distrl.store.objects import CorruptObjectError, MissingObjectError, ObjectStore
from distrl.types import ObjectRef

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 12

Spoil = Callable[[str, bytes], None]
"""Puts other bytes under the key of an object, behind the store's back."""

BAD_KEYS = [
    "",
    "/etc/passwd",
    "../outside",
    "runs/../../outside",
    "runs/./x",
    "runs//x",
    "runs/",
    ".hidden",
    "runs/.part-x",
    "a\\b",
    "a b",
    "a\n",
    "a\x00b",
    "café",
    "x" * 129,
    "/".join("x" * 17),
    "/".join(["x" * 128] * 8),
]


class StoreContract:
    def test_what_is_put_is_got_and_named_by_its_content(self, store: ObjectStore) -> None:
        ref = store.put("adapters", PNG, "safetensors")
        digest = hashlib.sha256(PNG).hexdigest()
        assert ref == ObjectRef(f"adapters/{digest}.safetensors", digest, len(PNG))
        assert store.get(ref) == PNG

    def test_screenshots_have_the_day_that_the_caller_says(self, store: ObjectStore) -> None:
        ref = store.put("screenshots", PNG, "png", day="2025-01-31")
        assert ref.key == f"screenshots/2025-01-31/{ref.sha256}.png"
        assert list(store.list("screenshots/2025-01-31/")) == [ref.key]

    @pytest.mark.parametrize("size", [0, 1, 300_000, 6_000_000])
    def test_any_size_comes_back(self, store: ObjectStore, size: int) -> None:
        data = np.random.default_rng(size).bytes(size)
        assert store.get(store.put("blobs", data, "bin")) == data

    def test_putting_twice_is_putting_once(self, store: ObjectStore) -> None:
        assert store.put("blobs", PNG, "bin") == store.put("blobs", PNG, "bin")
        assert len(list(store.list("blobs/"))) == 1

    def test_an_object_that_was_deleted_can_be_put_again(self, store: ObjectStore) -> None:
        ref = store.put("blobs", PNG, "bin")
        store.delete(ref.key)
        assert store.get(store.put("blobs", PNG, "bin")) == PNG

    def test_a_missing_object_is_an_error_that_names_it_and_the_setting(self, store: ObjectStore) -> None:
        ref = ObjectRef(f"blobs/{'0' * 64}.bin", "0" * 64, 3)
        with pytest.raises(MissingObjectError, match=ref.key) as caught:
            store.get(ref)
        assert "store.url" in caught.value.hint

    @pytest.mark.parametrize(
        "bad", [b"", PNG[:-1], PNG + b"\0", bytes([PNG[0] ^ 1]) + PNG[1:]], ids=["empty", "short", "long", "flipped"]
    )
    def test_bytes_that_are_not_those_of_the_name_are_never_returned(
        self, store: ObjectStore, spoil: Spoil, bad: bytes
    ) -> None:
        ref = store.put("blobs", PNG, "bin")
        spoil(ref.key, bad)
        with pytest.raises(CorruptObjectError, match=ref.key):
            store.get(ref)

    @pytest.mark.parametrize("size", [-1, 0, len(PNG) - 1, len(PNG) + 1, 2**62])
    def test_a_reference_that_lies_about_the_size_is_refused(self, store: ObjectStore, size: int) -> None:
        ref = store.put("blobs", PNG, "bin")
        with pytest.raises(CorruptObjectError):
            store.get(replace(ref, size=size))
        assert store.get(ref) == PNG

    @pytest.mark.parametrize("times", [1, 200])
    @pytest.mark.parametrize("spoilt", [lambda data: data[:-1], lambda data: data[::-1]])
    def test_a_spoilt_object_that_was_noticed_is_fixed_by_putting_it_again(
        self, store: ObjectStore, spoil: Spoil, times: int, spoilt: Callable[[bytes], bytes]
    ) -> None:
        data = PNG * times
        ref = store.put("blobs", data, "bin")
        spoil(ref.key, spoilt(data))
        with pytest.raises(CorruptObjectError):
            store.get(ref)
        assert store.get(store.put("blobs", data, "bin")) == data

    @pytest.mark.parametrize("key", BAD_KEYS)
    def test_a_key_that_could_leave_the_store_is_refused_everywhere(self, store: ObjectStore, key: str) -> None:
        for refused in (
            lambda: store.get(ObjectRef(key, "0" * 64, 1)),
            lambda: store.put_named(key, b"x"),
            lambda: store.get_named(key),
            lambda: store.delete(key),
        ):
            with pytest.raises(StoreError, match="no key"):
                refused()

    @pytest.mark.parametrize("prefix", ["../", "/", "runs/../", ".part", "a//", "a b"])
    def test_a_prefix_that_could_leave_the_store_is_refused(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(StoreError, match="no key starts so"):
            list(store.list(prefix))

    @pytest.mark.parametrize(
        ("kind", "suffix", "day"),
        [("../x", "png", None), ("", "png", None), ("x", "p/ng", None), ("x", "", None), ("x", "png", "../../etc")],
    )
    def test_a_part_of_a_key_that_could_leave_the_store_is_refused(
        self, store: ObjectStore, kind: str, suffix: str, day: str | None
    ) -> None:
        with pytest.raises(StoreError):
            store.put(kind, PNG, suffix, day)
        assert list(store.list("")) == []

    def test_a_named_object_is_replaced(self, store: ObjectStore) -> None:
        assert store.get_named("runs/demo/x.json") is None
        store.put_named("runs/demo/x.json", b"one, and longer")
        store.put_named("runs/demo/x.json", b"two")
        assert store.get_named("runs/demo/x.json") == b"two"

    def test_listing_is_by_prefix_and_in_order(self, store: ObjectStore) -> None:
        for key in ("runs/b/2", "runs/a/1", "runs/a-b", "runs/a/10", "other/a"):
            store.put_named(key, b"")
        assert list(store.list("runs/")) == ["runs/a-b", "runs/a/1", "runs/a/10", "runs/b/2"]
        assert list(store.list("runs/a/1")) == ["runs/a/1", "runs/a/10"]
        assert list(store.list("ru")) == ["runs/a-b", "runs/a/1", "runs/a/10", "runs/b/2"]
        assert list(store.list("nothing/here/")) == []
        assert len(list(store.list(""))) == 5

    def test_usage_counts_what_a_prefix_holds(self, store: ObjectStore) -> None:
        for key, size in (("runs/a/1", 10), ("runs/a/2", 200), ("runs/b/1", 3_000)):
            store.put_named(key, b"x" * size)
        assert store.usage("runs/a/") == (2, 210)
        assert store.usage("runs/") == (3, 3_210)
        assert store.usage("none/") == (0, 0)

    def test_deleting_what_is_not_there_is_no_error(self, store: ObjectStore) -> None:
        store.put_named("runs/x", b"1")
        for _ in range(2):
            store.delete("runs/x")
        store.delete("runs/x/below")
        assert store.get_named("runs/x") is None

    def test_threads_do_not_disturb_each_other(self, store: ObjectStore) -> None:
        blobs = [f"screen {i % 20}".encode() * 300 for i in range(100)]
        with ThreadPoolExecutor(8) as pool:
            refs = list(pool.map(lambda data: store.put("screenshots", data, "png", "2025-01-31"), blobs))
            assert list(pool.map(store.get, refs)) == blobs
        assert len(list(store.list("screenshots/"))) == 20

    def test_a_good_store_passes_its_check_again_and_again(self, store: ObjectStore) -> None:
        store.check()
        store.check()

    def test_checkpoints_come_back_newest_first_and_old_ones_go(self, store: ObjectStore) -> None:
        frozen = np.arange(5.0)
        for u in (1, 9, 10, 11):
            save_checkpoint(store, "demo", u, {"w": np.full(3, u), "frozen": frozen}, {"u": u})
        # Two manifests and the tensor files that they alone named.
        assert prune(store, "demo", keep=2, prunable=tensor_files(store, "demo")) == 4
        meta, tensors = latest_checkpoint(store, "demo") or ({}, {})
        assert meta == {"u": 11}
        assert tensors["w"].tolist() == [11, 11, 11]
        assert [key[-7:] for key in store.list("runs/demo/checkpoints/")] == ["10.json", "11.json"]

    def test_a_checkpoint_with_a_spoilt_file_is_skipped(
        self, store: ObjectStore, spoil: Spoil, caplog: pytest.LogCaptureFixture
    ) -> None:
        save_checkpoint(store, "demo", 1, {"w": np.zeros(3)}, {})
        old = set(store.list("runs/demo/tensors/"))
        save_checkpoint(store, "demo", 2, {"w": np.ones(3)}, {})
        (new,) = set(store.list("runs/demo/tensors/")) - old
        spoil(new, b"garbage")
        with caplog.at_level(logging.WARNING):
            _, tensors = latest_checkpoint(store, "demo") or ({}, {})
        assert tensors["w"].tolist() == [0, 0, 0]
        assert new in caplog.text
