"""Child processes that outlive the command that started them: a log file and a pid file each.

A child is identified by its pid and when it began, so that a reused pid is never signalled. It gets a session of its
own: Ctrl-C reaches only the command that started it, which then stops the child cleanly.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from distrl.birth import birth_of, is_born
from distrl.errors import StackError

POLL_S = 0.05
KILLED_S = 5.0
"""A killed process ends at once; the system may report it a moment later."""
LOG_MAX_BYTES = 16 * 1024 * 1024
"""A larger log is renamed to .log.old when its process starts again, so that restarts cannot fill the disk."""
LAST_LINES = 12
DISK_FULL = ("no space left on device", "disk quota exceeded", "minimum free drive threshold")
"""Messages of the system, Kafka and MinIO for a full disk."""
FULL_BYTES = 64 * 1024
"""With less free space than this the reason may be missing from the log too."""
LAST_BYTES = 8192


class CancelledError(StackError):
    """The wait was cancelled because another part failed or a person pressed Ctrl-C."""


class Child:
    """One process, running or ended. Made by `start` (its parent) or `find` (any later command)."""

    def __init__(
        self,
        name: str,
        pid: int,
        birth: str,
        directory: Path,
        popen: subprocess.Popen[bytes] | None = None,
        owner: object = None,
        log_start: int = 0,
    ) -> None:
        """birth: when it began, as `birth_of` has it. popen: only in its parent.

        owner: kept alive (not garbage-collected) as long as the child. log_start: bytes of its log that earlier
        processes of this name wrote.
        """
        self.name = name
        self.pid = pid
        self.birth = birth
        self.log = directory / f"{name}.log"
        self._pid_file = directory / f"{name}.pid"
        self._popen = popen
        self._owner = owner
        self._log_start = log_start

    def lives(self) -> bool:
        """Whether this very process runs, and not another one with its pid."""
        return self._process() is not None

    def listens(self, port: int) -> bool:
        """Whether it is this process that listens at `port`, and not another one."""
        process = self._process()
        try:
            found = process.net_connections("tcp") if process is not None else []
        except psutil.Error:  # it has ended meanwhile
            return False
        return any(each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port for each in found)

    def returncode(self) -> int | None:
        """Exit code (negative: the signal that ended it); None while it runs, and outside of its parent."""
        return None if self._popen is None else self._popen.poll()

    def last_lines(self) -> str:
        """The end of what it wrote to its log, for an error message."""
        return last_lines(self.log, self._log_start)

    def ending(self) -> str:
        """Why it ended, by what it wrote to its log: a full disk in one line, else the last lines."""
        lines, directory = self.last_lines(), self.log.parent
        if any(words in lines.lower() for words in DISK_FULL) or shutil.disk_usage(directory).free < FULL_BYTES:
            return f"No space left on device: free space on the disk of {directory}, then run the same command again"
        return f"the end of {self.log}:\n{lines}"

    def terminate(self) -> None:
        """Send SIGTERM. Does nothing if it has ended."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def forget(self) -> None:
        """Remove the pid file of an ended process."""
        self._pid_file.unlink(missing_ok=True)

    def save(self) -> None:
        """Write the pid file atomically."""
        beside = self._pid_file.with_suffix(".pid.new")
        beside.write_text(json.dumps({"pid": self.pid, "started": self.birth, "log_start": self._log_start}))
        beside.replace(self._pid_file)

    def _signal(self, number: signal.Signals) -> None:
        process = self._process()
        if process is not None:
            with suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                process.send_signal(number)

    def _process(self) -> psutil.Process | None:
        if self.returncode() is not None:
            return None
        try:
            process = psutil.Process(self.pid)
            same = birth_of(self.pid) == self.birth
            # Its first thread may have ended before others, which still hold its ports and files.
            ended = process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1
            return process if same and not ended else None
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None


def start(
    name: str,
    line: Sequence[str],
    directory: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    without: str | None = None,
) -> Child:
    """Start `line` as process `name`, its output appended to `<directory>/<name>.log`.

    env: added to this process's variables. without: those that begin so are left out. Raises StackError if a process of
    this name runs already, the program cannot be run, or its pid cannot be written; nothing runs then.
    """
    directory.mkdir(parents=True, exist_ok=True)
    other = find(directory, name)
    if other is not None:
        raise StackError(name, f"runs already as process {other.pid}", f"stop it first (`kill {other.pid}`)")
    kept = {name: value for name, value in os.environ.items() if without is None or not name.startswith(without)}
    log = directory / f"{name}.log"
    if log.exists() and log.stat().st_size > LOG_MAX_BYTES:
        log.replace(log.with_suffix(".log.old"))
    with log.open("ab") as out:
        log_start = out.tell()
        try:
            popen = subprocess.Popen(
                list(line),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**kept, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise StackError(name, f"{line[0]} cannot be run ({error.strerror})", "see `distrl doctor`") from None
    child = Child(name, popen.pid, birth_of(popen.pid), directory, popen, log_start=log_start)
    return _saved(child, directory)


def adopt(name: str, pid: int, directory: Path, owner: object) -> Child:
    """A child for a process that `owner` has started.

    Raises StackError if it has ended already, or its pid cannot be written; it does not run then.
    """
    try:
        birth = birth_of(pid)
    except psutil.NoSuchProcess:
        raise StackError(name, "ended at once", f"read {directory / name}.log") from None
    return _saved(Child(name, pid, birth, directory, owner=owner), directory)


def _saved(child: Child, directory: Path) -> Child:
    """`child` with its pid file. Where that cannot be written it is killed, as no later command would find it."""
    try:
        child.save()
    except OSError as error:
        child.kill()
        _wait_gone([child], KILLED_S)
        what = f"the pid of {child.name} cannot be written there ({error.strerror})"
        raise StackError(str(directory), what, "make room, or allow it to be written") from None
    return child


def find(directory: Path, name: str) -> Child | None:
    """The child `name` of an earlier command in `directory`, if it runs."""
    try:
        kept = json.loads((directory / f"{name}.pid").read_text())
        pid, log_start = int(kept["pid"]), int(kept.get("log_start", 0))  # 0: of an older version
        if not is_born(pid, kept["started"]):
            return None
        child = Child(name, pid, birth_of(pid), directory, log_start=log_start)
    except (FileNotFoundError, ValueError, KeyError, TypeError, psutil.Error):
        return None
    return child if child.lives() else None


def find_all(directory: Path) -> list[Child]:
    """Every running child in `directory`, by name, also of killed commands."""
    found = (find(directory, file.stem) for file in sorted(directory.glob("*.pid")))
    return [child for child in found if child is not None]


def stop_all(children: Iterable[Child], timeout_s: float) -> list[str]:
    """Terminate all in parallel; kill those that still run after `timeout_s`. Returns the names of the killed."""
    left = list(children)
    for child in left:
        child.terminate()
    left = _wait_gone(left, timeout_s)
    kill_all(left)
    return [child.name for child in left]


def kill_all(children: Iterable[Child]) -> None:
    """Kill all, and wait until they are gone."""
    killed = list(children)
    for child in killed:
        child.kill()
    _wait_gone(killed, KILLED_S)


def wait_ready(
    child: Child, ready: Callable[[], bool], timeout_s: float, cancelled: threading.Event, hint: str
) -> float:
    """Poll `ready` until it is true. Returns the seconds that it took.

    Raises StackError with the last lines of the log if the child ends or on time-out, CancelledError if `cancelled` is
    set. The child is left as it is.
    """
    began = time.monotonic()
    while not ready():
        spent = time.monotonic() - began
        if not child.lives():
            raise StackError(child.name, f"ended while starting; {child.ending()}", hint)
        if spent > timeout_s:
            raise StackError(child.name, f"is not ready after {spent:.0f} s; {child.ending()}", hint)
        if cancelled.wait(POLL_S):
            raise CancelledError(child.name, "its start was cancelled", "fix what failed first")
    return time.monotonic() - began


def last_lines(log: Path, start: int = 0) -> str:
    """The end of a log file from byte `start` on, read without the rest."""
    try:
        with log.open("rb") as file:
            file.seek(max(start, log.stat().st_size - LAST_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-LAST_LINES:]) or "(nothing)"


def _wait_gone(children: Sequence[Child], timeout_s: float) -> list[Child]:
    """Wait for all together. Returns those that still run."""
    deadline = time.monotonic() + timeout_s
    left = list(children)
    while True:
        there = [child for child in left if child.lives()]
        for child in left:
            if child not in there:
                child.forget()
        left = there
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(POLL_S)
