"""Identifies a process by more than its pid, and a boot of the machine, even if the system clock is set meanwhile."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
START_TIME: Final = 19
"""Where the start stands in /proc/PID/stat behind the name: field 22 of proc_pid_stat(5)."""
SAME_START_S: Final = 2.0
"""Tolerance of the times that older pid files hold."""


def boot_id() -> str:
    """Identifies the running kernel on Linux; empty elsewhere."""
    with suppress(OSError):
        return BOOT_ID.read_text("ascii").strip()
    return ""


def birth_of(pid: int) -> str:
    """When the process began, the same for as long as it lives: on Linux ticks since the boot, and which boot.

    psutil's start time would not do: it changes when the system clock is set. Raises psutil.NoSuchProcess.
    """
    if boot := boot_id():
        with suppress(OSError):  # it has ended
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            return f"{boot}/{int(fields[START_TIME])}"
    return f"{psutil.Process(pid).create_time():.2f}"


def is_born(pid: int, birth: object) -> bool:
    """Whether the process that began then runs at this pid. birth: as kept in a file, where older versions have seconds
    since the epoch. Raises psutil.NoSuchProcess."""
    if isinstance(birth, float):
        return abs(psutil.Process(pid).create_time() - birth) < SAME_START_S
    return birth_of(pid) == birth
