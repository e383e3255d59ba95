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
                raise _in_use(file, descriptor)
            wait()
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{doing} (process {os.getpid()})".encode(), 0)
        yield
    finally:
        os.close(descriptor)


WAIT = "wait until it is done, then try again"


def refuse_held(file: Path, fix: str = WAIT) -> None:
    """Raise StackError, with the hint `fix`, where another process holds `file`. Makes no file and keeps no lock."""
    try:
        descriptor = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return
    try:
        if not _taken(descriptor):
            raise _in_use(file, descriptor, fix)
    finally:
        os.close(descriptor)


def _in_use(file: Path, descriptor: int, fix: str = WAIT) -> StackError:
    holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "another command"
    return StackError(str(file), f"{holder} is at work there", fix)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
