"""A role is asked to stop by a signal, whatever its main thread is doing."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

IN_THE_MIDST_OF_A_WAIT = """
import os, signal
from distrl.cli.common import start_role
stop = start_role("a-role", False)
with stop._cond:  # as within stop.wait, a moment before it sleeps
    os.kill(os.getpid(), signal.SIGTERM)
assert stop.wait(30)
"""


A_SECOND_ONE = """
import os, signal, time
from distrl.cli.common import start_role
stop = start_role("a-role", False, second_kills=True)
os.kill(os.getpid(), signal.SIGINT)
assert stop.wait(30)
print("asked", flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(30)
"""


A_SECOND_CTRL_C = """
import os, signal, time
from distrl.cli import common
from distrl.runs import recorded

common._over_log = lambda here, *_: (here, None)  # in place of asking a broker
recorded.join = lambda *_: None
_, stop = common.started("worker", None, [], False)
os.kill(os.getpid(), signal.SIGTERM)
assert stop.wait(30)
os.kill(os.getpid(), signal.SIGTERM)
print("finishes its work", flush=True)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(30)
"""


IN_THE_MIDST_OF_AN_EXPORT = """
import os, re, signal, sys, time
from pathlib import Path
from tempfile import TemporaryDirectory
from distrl.broker import runs
from distrl.cli import main, view
from distrl.offline.new_folder import FolderFormat, NewFolder

NUMBER = signal.Signals[sys.argv.pop(1)]
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, also where the tests run under nohup

def write(*_):  # in place of asking a broker, after which an export is written
    with NewFolder(Path("new"), FolderFormat("a-test/1", re.compile("a")), force=False), TemporaryDirectory(dir="."):
        print(*sorted(os.listdir()), flush=True)
        os.kill(os.getpid(), NUMBER)
        time.sleep(30)

runs.check_run = view.with_broker = write
main.main()
"""


@pytest.mark.parametrize(
    ("command", "name"),
    [("view --export", "SIGTERM"), ("replay --dataset", "SIGTERM"), ("replay --atif", "SIGHUP")],
)
def test_an_export_that_is_stopped_leaves_nothing(tmp_path: Path, command: str, name: str) -> None:
    line = [sys.executable, "-c", IN_THE_MIDST_OF_AN_EXPORT, name, *command.split(), "place"]
    done = subprocess.run(line, cwd=tmp_path, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "")
    assert ".new." in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_second_signal_ends_a_role_that_may_wait_where_it_does_not_look() -> None:
    done = subprocess.run([sys.executable, "-c", A_SECOND_ONE], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGTERM, "asked\n")


def test_ctrl_c_ends_a_role_at_once_that_finishes_its_work_and_a_second_sigterm_does_not() -> None:
    """The parent of a training sends that."""
    done = subprocess.run([sys.executable, "-c", A_SECOND_CTRL_C], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "finishes its work\n", "")


def test_a_signal_that_falls_into_a_wait_for_it_stops_the_role() -> None:
    done = subprocess.run([sys.executable, "-c", IN_THE_MIDST_OF_A_WAIT], timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_that_is_closed_does_not_end_what_runs_under_nohup() -> None:
    program = (
        "import os, signal\nfrom distrl.cli.common import ended_as_interrupted\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nended_as_interrupted()\n"
        "os.kill(os.getpid(), signal.SIGHUP)\nprint('goes on')\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nprint('too far')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "goes on\n"
    assert "KeyboardInterrupt" in done.stderr
