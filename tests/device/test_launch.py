"""The emulator program as a process: what ends it ends what it has started too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from distrl.device.errors import DeviceUnready
from distrl.device.launch import Program
from waiting import WITHIN_S, until

TWO = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(600)"
LINE = [sys.executable, "-c", TWO, "sleep", "600"]
DEAF = [sys.executable, "-c", f"import signal; signal.signal(15, signal.SIG_IGN); {TWO}", "sleep", "600"]
"""Programs that start another one, and tell its pid."""


def program(folder: Path) -> Program:
    return Program("it", folder / "log", folder / "pid")


def until_told(file: Path) -> int:
    until(lambda: file.read_text().endswith("\n"), "a pid in the file")
    return int(file.read_text())


def ended(pid: int) -> bool:
    """Whether it ends, in time; it is killed where it does not."""
    end = time.monotonic() + WITHIN_S
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.01)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return False


@pytest.mark.parametrize("line", [LINE, DEAF])
def test_what_the_program_has_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: list[str]
) -> None:
    monkeypatch.setattr("distrl.device.launch.STOP_S", 0.2)
    one = program(tmp_path)
    one.start(line, {})
    other = until_told(one.log)
    one.stop()
    assert one.pid is None
    assert ended(other)


def test_a_log_that_cannot_be_written_is_not_blamed_on_the_program(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one = Program("it", tmp_path / "file" / "log", tmp_path / "pid")
    with pytest.raises(DeviceUnready, match="file/log cannot be written") as refused:
        one.start([sys.executable, "-c", ""], {})
    assert refused.value.where == "devices.directory"
    assert one.pid is None


ORPHAN = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:]).pid, flush=True)"
GONE = [sys.executable, "-c", ORPHAN, "sleep", "600"]
"""A program that starts another one, tells its pid and ends, as a launcher does whose emulator goes on without it."""


def test_what_outlives_the_program_that_started_it_is_ended_all_the_same(tmp_path: Path) -> None:
    one = program(tmp_path)
    one.start(GONE, {})
    other = until_told(one.log)
    until_ended(one)
    assert psutil.pid_exists(other)
    one.stop()
    assert ended(other)


def test_what_a_killed_worker_has_left_is_ended_also_where_its_leader_is_gone(tmp_path: Path) -> None:
    one = program(tmp_path)
    one.start(GONE, {})
    other = until_told(one.log)
    until_ended(one)  # which reaps it: the pid file names nobody
    program(tmp_path).stop_leftover()
    assert ended(other)


def test_a_session_of_somebody_else_under_the_same_number_is_left_alone(tmp_path: Path) -> None:
    """As after a restart of the machine, where a daemon's launcher had the number that the pid file names."""
    with (tmp_path / "log").open("wb") as log:
        subprocess.run(GONE, stdout=log, check=True, start_new_session=True)
    other = until_told(tmp_path / "log")
    try:
        session = os.getsid(other)
        assert session != os.getsid(0)
        assert not psutil.pid_exists(session)
        (tmp_path / "pid").write_text(json.dumps({"pid": session, "started": time.time()}))
        program(tmp_path).stop_leftover()
        assert psutil.pid_exists(other)
    finally:
        os.kill(other, signal.SIGKILL)


def until_ended(one: Program) -> None:
    until(lambda: one.status is not None, "it to end")


@pytest.mark.parametrize("leads", [True, False])
def test_what_a_killed_worker_has_left_ends_and_the_group_only_where_it_leads_one(tmp_path: Path, leads: bool) -> None:
    with (tmp_path / "log").open("wb") as log:
        left = subprocess.Popen(LINE, stdout=log, start_new_session=leads)
    try:
        other = until_told(tmp_path / "log")
        kept = {"pid": left.pid, "started": psutil.Process(left.pid).create_time()}
        (tmp_path / "pid").write_text(json.dumps(kept))
        program(tmp_path).stop_leftover()
        assert ended(left.pid)
        if leads:
            assert ended(other)
        else:
            assert psutil.pid_exists(other), "a group that is not its own is left alone, and so are we"
            os.kill(other, signal.SIGKILL)
    finally:
        left.kill()
        left.wait()
