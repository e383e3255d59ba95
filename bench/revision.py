"""Another revision of this project, checked out for as long as a bench compares with it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).absolute().parents[1]


@contextmanager
def checkout(revision: str) -> Iterator[Path]:
    """The directory of a work tree of `revision`, as git names it; it is gone afterwards."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        _worktree("add", "--quiet", "--detach", str(tree), revision)
        try:
            yield tree
        finally:
            _worktree("remove", "--force", str(tree))


def _worktree(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), "worktree", *arguments], check=True)
