"""The emulator program as a process: its command line, its log, its pid file.

Ends only processes that were started here, and their process group. An emulator left by a killed worker is identified
by the pid file or, if its first process is gone, by a variable in its environment.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import psutil

from distrl import config
from distrl.birth import birth_of, is_born
from distrl.device.errors import DeviceUnready
from distrl.device.processes import signal_group, wait_ended

log = logging.getLogger(__name__)

HOST = "127.0.0.1"
STOP_S = 10.0
LAST_BYTES = 1000
GUIDE = "docs/emulators.md"
MARK = "STARTED_BY_DISTRL"
"""Environment variable of all processes started here: the pid file's path. A pid alone may have been reused, and is
after a reboot."""


class Program:
    """One process at a time, with a log and a pid file. name: for messages. For one thread at a time."""

    def __init__(self, name: str, log_file: Path, pid_file: Path) -> None:
        self.log = log_file
        self._name = name
        self._pid_file = pid_file
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the running process; None if none runs."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    @property
    def status(self) -> int | None:
        """Its exit status (negative: the signal that ended it); None while it runs or if none was started."""
        child = self._child
        return None if child is None else child.poll()

    def start(self, line: Sequence[str], more: Mapping[str, str]) -> None:
        """Start it in a session of its own, so that Ctrl-C does not reach it. more: environment variables to add.

        Raises DeviceUnready if it cannot be run; then nothing runs.
        """
        with self._new_log() as output:
            try:
                self._child = subprocess.Popen(
                    list(line),
                    env={**os.environ, **more, MARK: str(self._pid_file)},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise DeviceUnready(
                    "devices.emulators.binary",
                    f"{line[0]} cannot be run ({error.strerror})",
                    f"set it to the emulator program of the Android SDK; see {GUIDE}",
                ) from error
        try:
            started = {"pid": self._child.pid, "started": birth_of(self._child.pid)}
            self._pid_file.write_text(json.dumps(started))
        except psutil.NoSuchProcess:
            pass  # it has ended already; the caller notices
        except OSError as error:
            self.stop()
            raise _unwritable(self._pid_file, error) from error
        log.info("%s started as process %d, log in %s", self._name, self._child.pid, self.log)

    def _new_log(self) -> BinaryIO:
        """A new log file, opened; the previous one stays beside it as `.log.old`. Raises DeviceUnready."""
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            if self.log.exists():
                self.log.replace(self.log.with_suffix(".log.old"))
            return self.log.open("wb")
        except OSError as error:
            raise _unwritable(self.log, error) from error

    def stop(self, ask: Callable[[], bool] = lambda: False) -> None:
        """End it if it runs. ask: requests a clean exit; if that fails, signals are sent."""
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None:
            if not ask():
                signal_group(child.pid, signal.SIGTERM)  # not reaped yet, so its pid is not reused
            wait_ended(child, self._name, STOP_S)
        self._end_group(child.pid)
        with suppress(OSError):  # if it stays, it names an ended process, which `stop_leftover` notices
            self._pid_file.unlink()

    def stop_leftover(self) -> None:
        """End the emulator that a killed worker has left running. The caller holds the phone's lease, so the process
        has no owner any more.
        """
        try:
            kept = json.loads(self._pid_file.read_text())
            pid = int(kept["pid"])
            if not psutil.pid_exists(pid):
                self._end_group(pid)
                return
            process = psutil.Process(pid)
            if not is_born(pid, kept["started"]) or pid == os.getpid():
                return
            log.warning("%s: ending process %d, left by a killed worker", self._name, process.pid)
            signal_group(process.pid, signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except psutil.TimeoutExpired:
                if process.is_running():
                    signal_group(process.pid, signal.SIGKILL)
                process.wait(STOP_S)
            self._end_group(pid)
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            return  # none was left, or it has ended; `check_free` reports a port still in use

    def _end_group(self, leader: int) -> None:
        """End the processes of our emulator's session that have outlived its first process."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            left = [each for each in psutil.process_iter() if self._is_of(each, leader)]
            if not left:
                return
            log.warning("%s: ending %s, which outlived its first process", self._name, [each.pid for each in left])
            for process in left:
                with suppress(psutil.Error):
                    process.send_signal(number)
            psutil.wait_procs(left, STOP_S)

    def _is_of(self, process: psutil.Process, leader: int) -> bool:
        try:
            if os.getsid(process.pid) != leader or process.status() == psutil.STATUS_ZOMBIE:
                return False
            return process.environ().get(MARK) == str(self._pid_file)
        except (psutil.Error, OSError):
            return False

    def log_tail(self) -> str:
        """The end of its log, to be appended to an error message; "" if the log is empty."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - LAST_BYTES))
                words = file.read().decode("utf-8", "replace").strip()
        except OSError:
            return ""
        return f"; its log ends with: {words}" if words else ""


def _unwritable(file: Path, error: OSError) -> DeviceUnready:
    return DeviceUnready(
        "devices.directory",
        f"{file} cannot be written ({error.strerror})",
        "free disk space, or set devices.directory to another folder",
    )


def command_line(settings: config.EmulatorSettings, port: int, *, writable: bool = False) -> list[str]:
    """The command line of an emulator. Instances that share a virtual device are read-only; the one that saves a
    snapshot is not, and boots cold. Raises DeviceUnready if there is no emulator program.
    """
    share = [] if writable else ["-read-only"]
    state = (
        ["-no-snapshot"] if writable or not settings.snapshot else ["-snapshot", settings.snapshot, "-no-snapshot-save"]
    )
    return [
        program(settings),
        "-avd",
        settings.avd,
        "-port",
        str(port),
        *share,
        *state,
        "-no-window",
        "-no-audio",
        "-no-boot-anim",
        *settings.arguments,
    ]


def program(settings: config.EmulatorSettings) -> str:
    """The path of the emulator program. Raises DeviceUnready if there is none."""
    if settings.binary is not None:
        return str(settings.binary.expanduser())
    homes = (os.environ.get(name) for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT"))
    inside = (Path(home) / "emulator" / "emulator" for home in homes if home)
    found = next((str(file) for file in inside if file.exists()), None) or shutil.which("emulator")
    if found is None:
        raise DeviceUnready(
            "devices.emulators.binary",
            "there is no emulator in $ANDROID_HOME/emulator nor on the PATH",
            f"install the Android SDK's emulator and set ANDROID_HOME, or this setting; see {GUIDE}",
        )
    return found


def check_free(ports: Sequence[int]) -> None:
    """Raises DeviceUnready for a port that is in use on this machine."""
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
                probe.listen(1)
            except OSError as error:
                raise DeviceUnready(
                    "devices.emulators.first_port",
                    f"port {port} of {HOST} is in use",
                    "stop what listens there (another emulator? see `distrl devices`), or set another even port",
                ) from error
