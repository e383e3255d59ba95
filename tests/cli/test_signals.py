"""A role is asked to stop by a signal, whatever its main thread is doing."""

from __future__ import annotations

import subprocess
import sys

IN_THE_MIDST_OF_A_WAIT = """
import os, signal
from distrl.cli.common import start_role
stop = start_role("a-role", False)
with stop._cond:  # as within stop.wait, a moment before it sleeps
    os.kill(os.getpid(), signal.SIGTERM)
assert stop.wait(30)
"""


def test_a_signal_that_falls_into_a_wait_for_it_stops_the_role() -> None:
    done = subprocess.run([sys.executable, "-c", IN_THE_MIDST_OF_A_WAIT], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
