"""A lock file that the system releases when its holder ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from distrl.errors import StackError


@contextmanager
def held(file: Path, doing: str, wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold `file` while the block runs.

    doing: what the holder does, shown to others. wait: called between two tries while another holds it; it pauses, or
    raises to give up. Without it, raises StackError, which says who holds the lock.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        while not _taken(descriptor):
            if wait is None:
                holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another command"
                raise StackError(str(file), f"{holder} is at work there", "wait until it is done, then try again")
            wait()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{doing} (process {os.getpid()})".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
