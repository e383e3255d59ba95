"""The lock of a stack: one holder, named to the others, and gone with its process."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from distrl.errors import StackError
from distrl.stack.locks import held

HOLDER = """
import sys, time
from pathlib import Path
from distrl.stack.locks import held
with held(Path(sys.argv[1]), "distrl up"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_holder_is_refused_and_sees_who_is_at_work(tmp_path: Path) -> None:
    lock = tmp_path / "deep" / "stack.lock"
    at_work = rf"distrl up \(process {os.getpid()}\) holds this lock"
    with held(lock, "distrl up"), pytest.raises(StackError, match=at_work), held(lock, "distrl down"):
        pass
    with held(lock, "distrl down"):
        pass


def test_a_lock_on_a_full_disk_holds_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`distrl down` could not stop a stack that had filled its disk."""

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lock = tmp_path / "stack.lock"
    monkeypatch.setattr(os, "pwrite", full)
    unnamed = "another command holds this lock"
    with held(lock, "distrl down"), pytest.raises(StackError, match=unnamed), held(lock, "distrl up"):
        pass


def test_a_killed_holder_leaves_no_lock_behind(tmp_path: Path) -> None:
    lock = tmp_path / "stack.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(StackError, match=f"process {holder.pid}"), held(lock, "distrl down"):
        pass
    waited = 0

    def wait() -> None:
        nonlocal waited
        waited += 1
        holder.kill()
        holder.wait()

    with held(lock, "distrl down", wait):
        assert waited == 1


def test_waiting_may_give_up(tmp_path: Path) -> None:
    def give_up() -> None:
        raise TimeoutError

    with held(tmp_path / "lock", "one"), pytest.raises(TimeoutError), held(tmp_path / "lock", "two", give_up):
        pass
