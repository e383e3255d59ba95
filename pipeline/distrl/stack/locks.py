"""A lock file with its holder's name, which the system unlocks when the holder ends in any way."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from distrl.errors import StackError

WORDS_SHOWN = 200
"""How much of a lock file is shown: its content is untrusted."""
WORK = "new-"
"""Prefix of the folders in which something is made before it gets its name."""
WAIT = "wait until it has ended, then try again"


@contextmanager
def held(file: Path, doing: str, wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold `file` while the block runs.

    doing: what the holder does, shown to others. wait: called between attempts while another holds it; it pauses, or
    raises to give up. Without it, raises StackError with the holder.
    """

    def sign(descriptor: int) -> None:
        with suppress(OSError):  # a full disk: the lock holds without the name, and what fills it can be stopped
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{doing} (process {os.getpid()})".encode(), 0)

    file.parent.mkdir(parents=True, exist_ok=True)
    lock = _lock(file, sign)
    while not _taken(lock):
        if wait is None:
            raise _in_use(file, WAIT)
        wait()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """An empty folder within `folder`, removed after the block.

    The caller holds a lock of `folder`: what killed holders have left there, 100 MB each time, is removed first.
    """
    for left in folder.glob(f"{WORK}*"):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=WORK) as work:
        yield Path(work)


def refuse_held(file: Path, fix: str = WAIT) -> None:
    """Raise StackError, with the hint `fix`, if another process holds `file`. Makes no file and keeps no lock."""
    if not file.exists():
        return
    lock = _lock(file)
    if not _taken(lock):
        raise _in_use(file, fix)
    lock.release()


def _lock(file: Path, on_acquired: Callable[[int], None] | None = None) -> FileLock:
    """Without filelock's fallback for file systems without locks: that lock would outlive a killed holder."""
    return FileLock(file, blocking=False, fallback_to_soft=False, preserve_lock_file=True, on_acquired=on_acquired)


def _taken(lock: FileLock) -> bool:
    try:
        lock.acquire()
    except Timeout:
        return False
    return True


def _in_use(file: Path, fix: str) -> StackError:
    with file.open("rb") as opened:
        holder = opened.read(WORDS_SHOWN).decode("utf-8", "replace").strip() or "another command"
    return StackError(str(file), f"{holder} holds this lock", fix)
