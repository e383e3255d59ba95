"""The end of processes that this room has started: emulators and adb servers."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from contextlib import suppress

log = logging.getLogger(__name__)


def wait_ended(child: subprocess.Popen[bytes], name: str, within_s: float) -> None:
    """Wait until a child that was asked to end has, and kill it after `within_s`. name: for messages.

    One that does not end even then is left: the kernel holds it, as over a disk or a USB port that hangs.
    """
    try:
        child.wait(within_s)
    except subprocess.TimeoutExpired:
        signal_group(child.pid, signal.SIGKILL)
        try:
            child.wait(within_s)
        except subprocess.TimeoutExpired:
            log.error("%s: process %d does not end though it was killed", name, child.pid)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the process, and its group if it leads one other than ours. Does nothing if it has ended."""
    with suppress(ProcessLookupError):
        if os.getpgid(pid) == pid != os.getpgrp():
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
