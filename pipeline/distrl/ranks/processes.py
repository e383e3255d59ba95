"""The other ranks as processes of this machine, for `distrl learner --ranks N`."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

import psutil

from distrl.ranks.group import AGAIN, RankError
from distrl.ranks.place import LOOPBACK, Place

LOG = logging.getLogger("distrl.ranks")

END_S = 10.0
"""How long all ranks together may take to end. They end when rank 0 has closed its connections; a rank that computes
notices that a little later."""


class RankProcesses:
    """Starts ranks 1 to world − 1: the same command with a launcher's variables. They meet at the loopback address.

    `with` starts them; after the block they have ended. One thread.
    """

    def __init__(self, command: Sequence[str], world: int) -> None:
        """command: arguments of `distrl`."""
        self._line, self._world = [sys.executable, "-m", "distrl.cli.main", *command], world
        self.listener = socket.create_server((LOOPBACK, 0))
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> RankProcesses:
        port = self.listener.getsockname()[1]
        os.environ.setdefault("GLOO_SOCKET_IFNAME", _loopback())  # else they listen where this machine's name points
        try:
            for rank in range(1, self._world):
                environ = os.environ | Place(rank, self._world, rank).environ(port)
                self._children[rank] = subprocess.Popen(self._line, env=environ, stdin=subprocess.DEVNULL)
                LOG.info("rank %d of %d is process %d", rank, self._world, self._children[rank].pid)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        """Ask all to end, since ranks that have not met yet wait for one another; kill those that have not ended after
        END_S."""
        self.listener.close()
        asked = [child for child in self._children.values() if child.poll() is None]
        for child in asked:
            child.terminate()
        deadline = time.monotonic() + END_S
        for rank, child in self._children.items():
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))
                if child.returncode and not (child in asked and child.returncode == -signal.SIGTERM):
                    LOG.error("rank %d of %d has ended: %s", rank, self._world, _how(child.returncode))
        for child in self._children.values():
            child.kill()
            child.wait()

    def check(self) -> None:
        """Raise RankError where one has ended."""
        for rank, child in self._children.items():
            if (code := child.poll()) is not None:
                raise RankError(f"rank {rank} of {self._world}", f"process {child.pid} has ended: {_how(code)}", AGAIN)


def _how(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _loopback() -> str:
    """The name of the interface with the loopback address."""
    found = psutil.net_if_addrs()
    return next(name for name, each in found.items() if any(one.address == LOOPBACK for one in each))
