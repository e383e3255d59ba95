"""What the processes of a test run."""

from __future__ import annotations

import psutil


def line_of(process: psutil.Process) -> str:
    """Its command line in one piece; empty once it has ended, also where nobody has asked for its exit code yet."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one, too
        return ""
