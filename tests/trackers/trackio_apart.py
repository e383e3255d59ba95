"""Trackio in processes of its own: it wants an older Pillow than everything else here is tested with.

Its packages, those of requirements-trackio.lock, are installed once for a user, into the cache that servers are in, and
come before all others in such a process. `python -m trackers.trackio_apart` is what runs there.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distrl.trackers.protocol import Point, TrackedRun
from fetching import cache
from filelock import FileLock

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements-trackio.lock"
NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.bind", "socket.send")
PROGRAMS = ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.fork", "webbrowser.open")


def packages() -> Path:
    """The folder that they are installed in. Safe in several processes at once."""
    pins = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache() / "tools" / f"trackio-{pins}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():  # no other process has installed them meanwhile
                _install(folder)
    return folder


def _install(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as scratch:
        new = Path(scratch) / "packages"
        words = ("--quiet", "--no-deps", "--require-hashes", "--python", sys.executable, "--target", str(new))
        subprocess.run([sys.executable, "-m", "uv", "pip", "install", *words, "--requirement", str(LOCK)], check=True)
        new.rename(folder)


def environment() -> dict[str, str]:
    """Of a process that is to find them."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    return found | {"PYTHONPATH": os.pathsep.join([str(packages()), str(ROOT / "tests")])}


class Apart:
    """The tracker, in a process that notes what it asks of the network and which programs it starts."""

    def __init__(self, folder: Path, project: str) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "trackers.trackio_apart"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        self.began: list[str] = []
        """Uses of the network and programs, in words."""
        self.call("open", folder, project, list(sys.argv))

    def start(self, run: TrackedRun, logged: int) -> None:
        self.call("start", run, logged)

    def log(self, points: Sequence[Point]) -> None:
        self.call("log", points)

    def finish(self) -> None:
        self.call("finish")
        self._end()

    def kill(self) -> None:
        self._child.kill()
        self._end()

    def call(self, name: str, *arguments: Any) -> Any:
        """Have a function of the child's called. Raises what it raises."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        pickle.dump((name, arguments), self._child.stdin)
        self._child.stdin.flush()
        found, error, began = pickle.load(self._child.stdout)
        self.began += began
        if error is not None:
            self._end()
            raise error
        return found

    def _end(self) -> None:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait()
        self._child.stdout.close()


def logs(folder: Path, project: str) -> tuple[list[tuple[str, str, list[dict[str, Any]]]], dict[str, Any] | None]:
    """(name, id, rows) of each run of a project, and the settings of the last, by Trackio's own API."""
    child = Apart(folder, project)
    try:
        found: tuple[list[tuple[str, str, list[dict[str, Any]]]], dict[str, Any] | None] = child.call("read", project)
        return found
    finally:
        child.kill()


def _read(project: str) -> Any:
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    runs = list(Api().runs(project))
    rows = [(run.name, run.id, SQLiteStorage.get_logs(project, run.name, run_id=run.id)) for run in runs]
    return rows, runs[-1].config


def _serve() -> None:
    """Calls what standard input asks for until it ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    began: list[str] = []

    def noted(event: str, arguments: tuple[object, ...]) -> None:
        if event.startswith(NETWORK + PROGRAMS):
            began.append(f"{event} {arguments}")

    sys.addaudithook(noted)
    called: dict[str, Any] = {"read": _read, "eval": eval}

    def opened(folder: Path, project: str, argv: list[str]) -> None:
        from distrl.trackers.registry import open_tracker

        sys.argv = argv
        made = open_tracker("trackio", folder, project)
        called.update(start=made.start, log=made.log, finish=made.finish)

    called["open"] = opened
    while True:
        try:
            name, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        found, error = None, None
        try:
            found = called[name](*arguments)
        except Exception as raised:
            error = raised
        pickle.dump((found, error, [*began]), answers)
        began.clear()
        answers.flush()


if __name__ == "__main__":
    _serve()
