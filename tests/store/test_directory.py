"""The directory store: the contract, and what only files can do (half-written ones, a full disk, permissions)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from distrl import config
from distrl.errors import StoreError
from distrl.store import directory
from distrl.store.directory import LARGE, LEFT_S, DirectoryStore
from distrl.store.objects import ObjectStore, open_store

from tests.store.contract import PNG, Spoil, StoreContract


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(config.StoreSettings(url=f"file://{tmp_path}/objects"))


@pytest.fixture
def spoil(tmp_path: Path) -> Spoil:
    def write(key: str, data: bytes) -> None:
        (tmp_path / "objects" / key).write_bytes(data)

    return write


class TestDirectory(StoreContract):
    pass


def test_a_relative_url_is_a_relative_directory() -> None:
    store = open_store(config.StoreSettings(url="file://out/objects"))
    assert isinstance(store, DirectoryStore)
    assert store.root == Path("out/objects")


def in_child(tmp_path: Path, body: str) -> subprocess.CompletedProcess[str]:
    """Run `body` in a process of its own, with `store` on tmp_path/objects."""
    script = f"""
        import os, resource, sys
        import numpy as np
        from pathlib import Path
        from distrl.errors import StoreError
        from distrl.store.checkpoints import save_checkpoint
        from distrl.store.directory import DirectoryStore
        store = DirectoryStore(Path({str(tmp_path / "objects")!r}))
    """
    text = textwrap.dedent(script) + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_killed_while_writing_leaves_the_old_object_whole(tmp_path: Path, store: ObjectStore, moment: str) -> None:
    store.put_named("runs/demo/x.json", b"old")
    child = in_child(tmp_path, f"os.{moment} = lambda *_: os._exit(9)\nstore.put_named('runs/demo/x.json', b'new')")
    assert child.returncode == 9
    assert store.get_named("runs/demo/x.json") == b"old"
    assert list(store.list("")) == ["runs/demo/x.json"]


def test_a_file_that_cannot_grow_is_an_error_and_the_old_object_stays(tmp_path: Path, store: ObjectStore) -> None:
    """A limit on file size is what a full disk is to a process: the write fails half-way."""
    store.put_named("runs/demo/x.json", b"old")
    child = in_child(
        tmp_path,
        """
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        data = bytes(9000)
        for write in (lambda: store.put_named("runs/demo/x.json", data), lambda: store.put("x", data, "b")):
            try:
                write()
            except StoreError as error:
                print(error.where, "|", error.hint)
        """,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.count("store.url | free space") == 2
    assert store.get_named("runs/demo/x.json") == b"old"
    files = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["x.json"]


def test_a_spoilt_file_is_written_again_even_if_nobody_noticed(store: ObjectStore, spoil: Spoil) -> None:
    ref = store.put("blobs", PNG, "bin")
    spoil(ref.key, bytes(len(PNG)))
    assert store.get(store.put("blobs", PNG, "bin")) == PNG


def test_a_file_where_the_directory_should_be_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "objects").write_text("in the way")
    store = DirectoryStore(tmp_path / "objects")
    with pytest.raises(StoreError) as caught:
        store.check()
    assert caught.value.where == "store.url"
    assert str(tmp_path / "objects") in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir(mode=0o500)
    with pytest.raises(StoreError, match="Permission denied"):
        DirectoryStore(tmp_path / "objects").check()


def test_what_a_killed_writer_has_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    """And nothing that one may still be writing."""
    root = tmp_path / "objects"
    DirectoryStore(root).put("screenshots", PNG, "png")
    folder = next(root.rglob("*.png")).parent
    old, new = folder / ".part-old", folder / ".part-new"
    for left in (old, new):
        left.write_bytes(b"half")
    hours_ago = time.time() - 2 * LEFT_S
    os.utime(old, (hours_ago, hours_ago))
    DirectoryStore(root).put_named(f"{folder.relative_to(root)}/another.png", bytes(LARGE))
    assert not old.exists()
    assert new.exists()


def test_other_users_may_read_what_the_mask_of_the_process_lets_them(tmp_path: Path) -> None:
    """As workers beside a learner of another user, or who looks at pages."""
    for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
        child = in_child(
            tmp_path,
            f"""
            from distrl.store import directory
            directory.UMASK = {mask}
            store.put_named("runs/{mask}.json", b"x")
            """,
        )
        assert child.returncode == 0, child.stderr
        assert (tmp_path / "objects" / f"runs/{mask}.json").stat().st_mode & 0o777 == mode


def test_names_of_new_folders_and_of_files_that_were_there_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss may take what a record names: its writer may have been killed before it could sync."""
    synced: list[Path] = []
    monkeypatch.setattr(directory, "sync", synced.append)
    store = DirectoryStore(tmp_path / "objects")
    ref = store.put("screenshots", PNG, "png", "2026-01-02")
    folders = [*reversed((tmp_path / "objects" / ref.key).relative_to(tmp_path).parents)]
    assert synced == [*(tmp_path / each for each in folders[:-1]), (tmp_path / "objects" / ref.key).parent]
    synced.clear()
    assert store.put("screenshots", PNG, "png", "2026-01-02") == ref
    assert synced == [(tmp_path / "objects" / ref.key).parent]
