"""Children: known by pid and start time, stopped together, killed only where asking does not help."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from command_lines import line_of
from distrl.errors import StackError
from distrl.stack import processes
from distrl.stack.processes import CancelledError, Child, adopt, find, find_all, start, stop_all, wait_ready
from waiting import until

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    sys.executable, "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]  # fmt: skip
ENDS_WITH_OTHERS = """
import os, signal, sys, time
from pathlib import Path
asked = Path(sys.argv[1])
def end(*_):
    (asked / f"{os.getpid()}.asked").touch()
    while len(list(asked.glob("*.asked"))) < 4:
        time.sleep(0.01)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(600)
"""
FIRST_THREAD_ENDS = """
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print("up", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)  # exit, of this thread alone
"""
NEVER = threading.Event()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    """Starts a child and waits until it has said that it is up; kills what is left at the end."""

    def go(name: str, line: list[str] = SLEEPER) -> Child:
        child = start(name, line, tmp_path)
        wait_ready(child, lambda: "up" in child.last_lines(), 20.0, NEVER, "")
        return child

    yield go
    for child in find_all(tmp_path):
        child.kill()


def test_a_child_is_found_by_a_later_command_and_stopped(launch: Callable[..., Child], tmp_path: Path) -> None:
    started = launch("server")
    found = find(tmp_path, "server")
    assert found is not None
    assert (found.pid, found.returncode()) == (started.pid, None)
    assert stop_all([found], 20.0) == []
    assert started.returncode() == -signal.SIGTERM
    assert find(tmp_path, "server") is None
    assert not list(tmp_path.glob("*.pid"))


def test_one_whose_pid_cannot_be_written_is_not_left_running(tmp_path: Path) -> None:
    (tmp_path / "a.pid.new").mkdir()  # where the file is written first
    with pytest.raises(StackError, match="the pid of a cannot be written"):
        start("a", SLEEPER, tmp_path)
    assert not [each for each in psutil.Process().children() if line_of(each) == " ".join(SLEEPER)]


def test_one_that_another_has_started_is_killed_where_its_pid_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a.pid.new").mkdir()
    with subprocess.Popen(SLEEPER) as started:
        with pytest.raises(StackError, match="the pid of a cannot be written"):
            adopt("a", started.pid, tmp_path, started)
        assert started.wait(20.0) == -signal.SIGKILL


def test_a_clock_that_is_set_makes_nobody_a_stranger(
    launch: Callable[..., Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a virtual machine goes on after hours: the boot, and all that began since, seem to be another time."""
    began = launch("server").pid
    boot = psutil.boot_time()
    monkeypatch.setattr(psutil._psplatform, "boot_time", lambda: boot + 3600.0)
    monkeypatch.setattr(psutil._psplatform, "BOOT_TIME", boot + 3600.0, raising=False)
    found = find(tmp_path, "server")
    assert found is not None
    assert found.pid == began
    assert stop_all([found], 20.0) == []
    assert find(tmp_path, "server") is None


def test_a_pid_file_of_an_older_version_is_understood(launch: Callable[..., Child], tmp_path: Path) -> None:
    child = launch("server")
    kept = {"pid": child.pid, "started": psutil.Process(child.pid).create_time()}
    (tmp_path / "server.pid").write_text(json.dumps(kept))
    found = find(tmp_path, "server")
    assert found is not None
    assert found.birth == child.birth
    (tmp_path / "server.pid").write_text(json.dumps({**kept, "started": kept["started"] - 60.0}))
    assert find(tmp_path, "server") is None
    child.save()  # else nobody finds it, and it is left


def test_a_recycled_pid_is_a_stranger_and_is_never_signalled(launch: Callable[..., Child], tmp_path: Path) -> None:
    stranger = launch("stranger")
    kept = {"pid": stranger.pid, "started": stranger.birth + "0"}
    (tmp_path / "server.pid").write_text(json.dumps(kept))
    assert find(tmp_path, "server") is None
    ours = Child("server", stranger.pid, stranger.birth + "0", tmp_path)
    assert stop_all([ours], 5.0) == []
    ours.kill()
    assert stranger.lives()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"pid": "x", "started": 1}', '{"pid": 1}'])
def test_a_pid_file_that_is_none_names_nobody(tmp_path: Path, text: str) -> None:
    (tmp_path / "server.pid").write_text(text)
    assert find(tmp_path, "server") is None
    assert find_all(tmp_path) == []


def test_a_second_process_of_a_name_is_refused(launch: Callable[..., Child], tmp_path: Path) -> None:
    first = launch("server")
    with pytest.raises(StackError, match=f"runs already as process {first.pid}"):
        start("server", SLEEPER, tmp_path)


class UntilEnded:
    """In place of the module `time`: the time-out of who waits is over once `children` have been seen to have ended,
    however long a busy machine takes for that."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children, self._have_ended = children, False

    def monotonic(self) -> float:
        now = 1000.0 if self._have_ended else 0.0
        self._have_ended = not any(child.lives() for child in self._children)  # who waits looks before the next call
        return now

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def test_one_that_does_not_listen_is_killed_and_the_others_are_not_kept_waiting(
    launch: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    children = [launch("deaf", STUBBORN), launch("one"), launch("two")]
    monkeypatch.setattr(processes, "time", UntilEnded(children[1:]))
    assert stop_all(children, 0.5) == ["deaf"]
    assert [child.returncode() for child in children] == [-signal.SIGKILL, -signal.SIGTERM, -signal.SIGTERM]


def test_many_are_stopped_together(launch: Callable[..., Child], tmp_path: Path) -> None:
    """Each ends once all have been asked: one that is waited for before the next is asked would have to be killed."""
    children = [launch(f"one-{number}", [sys.executable, "-c", ENDS_WITH_OTHERS, str(tmp_path)]) for number in range(4)]
    assert stop_all(children, 60.0) == []
    assert [child.returncode() for child in children] == [0] * 4


def test_a_child_that_ends_for_a_full_disk_is_reported_so_and_where(tmp_path: Path) -> None:
    full = "import os; os.write(os.open('/dev/full', os.O_WRONLY), b'x')"
    child = start("server", [sys.executable, "-c", full], tmp_path)
    with pytest.raises(StackError, match="ended while starting; No space left on device: free space") as told:
        wait_ready(child, lambda: False, 20.0, NEVER, "")
    assert str(tmp_path) in told.value.what
    assert "Traceback" not in told.value.what


def test_what_an_earlier_process_wrote_to_the_same_log_is_not_repeated(
    launch: Callable[..., Child], tmp_path: Path
) -> None:
    full = "import sys; sys.exit('No space left on device')"
    first = start("server", [sys.executable, "-c", full], tmp_path)
    with pytest.raises(StackError, match="No space left on device: free space"):
        wait_ready(first, lambda: False, 20.0, NEVER, "")
    second = launch("server")
    found = find(tmp_path, "server")
    assert found is not None
    assert second.last_lines() == found.last_lines() == "up"
    assert second.ending() == found.ending() == f"the end of {second.log}:\nup"


def test_a_process_whose_first_thread_has_ended_lives_as_long_as_another_runs(
    launch: Callable[..., Child], tmp_path: Path
) -> None:
    launch("server", [sys.executable, "-c", FIRST_THREAD_ENDS])
    found = find(tmp_path, "server")
    assert found is not None
    until(lambda: psutil.Process(found.pid).status() == psutil.STATUS_ZOMBIE, "it to end")
    assert found.lives()
    assert stop_all([found], 20.0) == []
    assert not found.lives()


def test_ctrl_c_does_not_reach_a_child(launch: Callable[..., Child]) -> None:
    child = launch("server")
    assert os.getsid(child.pid) != os.getsid(0)
    assert os.getpgid(child.pid) != os.getpgid(0)


def test_a_child_that_ends_while_starting_is_reported_with_its_last_words(tmp_path: Path) -> None:
    child = start("server", [sys.executable, "-c", "print('no room left'); raise SystemExit(3)"], tmp_path)
    with pytest.raises(StackError, match="ended while starting") as told:
        wait_ready(child, lambda: False, 20.0, NEVER, "make room")
    assert "no room left" in told.value.what
    assert told.value.hint == "make room"
    assert child.returncode() == 3


def test_one_that_is_never_ready_is_given_up_and_left_to_the_caller(launch: Callable[..., Child]) -> None:
    child = launch("server")
    with pytest.raises(StackError, match="is not ready after"):
        wait_ready(child, lambda: False, 0.1, NEVER, "")
    assert child.lives()


def test_waiting_ends_when_the_others_have_failed(launch: Callable[..., Child]) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(CancelledError):
        wait_ready(launch("server"), lambda: False, 60.0, cancelled, "")


def test_a_program_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="cannot be run"):
        start("server", [str(tmp_path / "missing")], tmp_path)
    assert not list(tmp_path.glob("*.pid"))


def test_a_log_goes_on_and_is_rotated_once_it_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(text: str) -> None:
        child = start("job", [sys.executable, "-c", f"print({text!r})"], tmp_path)
        with suppress(psutil.NoSuchProcess):  # it may have ended already
            psutil.wait_procs([psutil.Process(child.pid)], 20)

    run("first")
    run("second")
    assert (tmp_path / "job.log").read_text() == "first\nsecond\n"
    monkeypatch.setattr(processes, "LOG_MAX_BYTES", 5)
    run("third")
    assert (tmp_path / "job.log").read_text() == "third\n"
    assert (tmp_path / "job.log.old").read_text() == "first\nsecond\n"


def test_the_last_lines_of_a_huge_log_are_read_without_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"x" * 10_000 + b"\n" + b"".join(b"line %d\n" % number for number in range(30)) + b"\xff\n")
    lines = processes.last_lines(log).splitlines()
    assert len(lines) == processes.LAST_LINES
    assert lines[-2:] == ["line 29", "\ufffd"]
    assert processes.last_lines(tmp_path / "none.log") == "(no log)"
