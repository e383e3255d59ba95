"""Objects that are deleted side by side."""

from __future__ import annotations

from pathlib import Path
from threading import Barrier

import pytest
from distrl.errors import StoreError
from distrl.runs import remove
from distrl.store.directory import DirectoryStore


class Refusing(DirectoryStore):
    """Deletes nothing whose key ends with `ending`."""

    ending = "7"

    def delete(self, key: str) -> None:
        if key.endswith(self.ending):
            raise StoreError("store.url", f"{key} cannot be deleted", "see the endpoint's log")
        super().delete(key)


def stored(store: DirectoryStore, count: int) -> list[str]:
    keys = [f"runs/demo/{number}" for number in range(count)]
    for key in keys:
        (store.root / key).parent.mkdir(parents=True, exist_ok=True)
        (store.root / key).write_bytes(b"x")
    return keys


def unheard(count: int) -> None:
    return


def test_every_key_goes_and_progress_shows_on_the_way(tmp_path: Path) -> None:
    store, heard = DirectoryStore(tmp_path), list[int]()
    keys = stored(store, 2 * remove.BATCH + 1)
    assert remove._delete(store, keys, heard.append) == len(keys)
    assert list(store.list("")) == []
    assert heard == [remove.BATCH, 2 * remove.BATCH, len(keys)]


def test_one_that_cannot_be_deleted_ends_it_with_an_error_and_it_may_be_repeated(tmp_path: Path) -> None:
    keys = stored(DirectoryStore(tmp_path), 100)
    with pytest.raises(StoreError, match="runs/demo/7 cannot"):
        remove._delete(Refusing(tmp_path), keys, unheard)
    remove._delete(DirectoryStore(tmp_path), keys, unheard)
    assert list(DirectoryStore(tmp_path).list("")) == []


def test_several_are_deleted_at_once(tmp_path: Path) -> None:
    at_once = Barrier(remove.AT_ONCE)

    class Meeting(DirectoryStore):
        def delete(self, key: str) -> None:
            at_once.wait(60)
            super().delete(key)

    keys = stored(Meeting(tmp_path), remove.AT_ONCE)
    assert remove._delete(Meeting(tmp_path), keys, unheard) == remove.AT_ONCE
