"""Roles of a run as real processes: started warm, killed with SIGKILL, and heard out when they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from distrl.stack.processes import last_lines

LAUNCH = Path(__file__).parent / "launch.py"
POLL_S = 0.02
STOP_S = 60.0
KILLED = -signal.SIGKILL


class Launcher:
    """The warm process (launch.py). Thread-safe: a storm kills from several threads."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(LAUNCH)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()

    def start(self, arguments: Sequence[str], log: Path, point: str | None, nth: int, clock: Path | None) -> int:
        asked = {"start": list(arguments), "log": str(log), "point": point, "nth": nth}
        return int(self._ask(asked | {"clock": str(clock) if clock else None})["pid"] or 0)

    def poll(self, pid: int) -> int | None:
        return self._ask({"poll": pid})["code"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(STOP_S)

    def _ask(self, asked: dict[str, object]) -> dict[str, int | None]:
        pipe_in, pipe_out = self._process.stdin, self._process.stdout
        assert pipe_in is not None
        assert pipe_out is not None
        with self._lock:
            pipe_in.write(json.dumps(asked) + "\n")
            pipe_in.flush()
            answer: dict[str, int | None] = json.loads(pipe_out.readline())
        return answer


class Role:
    """One process. `code` is None while it lives.

    line: its command's arguments. began_at: length of the log when it started.
    """

    def __init__(self, name: str, line: Sequence[str], launcher: Launcher, pid: int, log: Path, began_at: int) -> None:
        self.name, self.line, self.pid, self.log = name, line, pid, log
        self.started_at = int(time.time() * 1000)
        self._launcher, self._began_at = launcher, began_at
        self._code: int | None = None

    @property
    def code(self) -> int | None:
        if self._code is None:
            self._code = self._launcher.poll(self.pid)
        return self._code

    def said(self) -> str:
        """What this process has logged, without what one before it under the same name did."""
        said = self.log.read_bytes() if self.log.exists() else b""
        return said[self._began_at :].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing is flushed."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()

    def ask_to_stop(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGTERM)

    def stop(self) -> None:
        """SIGTERM, and it must end well."""
        self.ask_to_stop()
        code = self.wait()
        assert code == 0, f"{self.name} ended with {code}:\n{last_lines(self.log)}"

    def wait(self, timeout_s: float = STOP_S) -> int:
        deadline = time.monotonic() + timeout_s
        while (code := self.code) is None:
            assert time.monotonic() < deadline, f"{self.name} still runs:\n{last_lines(self.log)}"
            time.sleep(POLL_S)
        return code
