"""The node's control groups: one of its own in each hierarchy, below which kubelet puts those of the pods."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from k8s.node.layout import CGROUP

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
"""What kubelet limits pods by."""
LEAVE_S = 10.0
"""A killed process is in its group until the system has taken its memory back."""


def make() -> None:
    """The node's groups, in the one hierarchy of version 2 or in each of version 1."""
    if (ROOT / "cgroup.controllers").exists():
        (ROOT / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in CONTROLLERS))
        (ROOT / CGROUP).mkdir(exist_ok=True)
        return
    for hierarchy in _hierarchies():
        (hierarchy / CGROUP).mkdir(exist_ok=True)
    for file in ("cpuset.cpus", "cpuset.mems"):  # empty in a new group, and no process may then join it
        (ROOT / "cpuset" / CGROUP / file).write_text((ROOT / "cpuset" / file).read_text())


def remove() -> None:
    """All of the node's groups. Its processes have been killed."""
    deadline = time.monotonic() + LEAVE_S
    while left := [*ROOT.glob(CGROUP), *ROOT.glob(f"*/{CGROUP}")]:
        for top in left:
            for group, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):  # still in use
                    os.rmdir(group)
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes are left in {', '.join(map(str, left))}")
        time.sleep(0.05)


def _hierarchies() -> list[Path]:
    """Of version 1; where one is mounted by two names, as cpu and cpuacct may be, the second finds the group made."""
    return [path for path in ROOT.iterdir() if path.is_dir() and (path / "tasks").exists()]
