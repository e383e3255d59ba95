"""Several ranks of one fold as real processes, which meet by gloo on the loopback address."""

from __future__ import annotations

import multiprocessing
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import psutil
from distrl.ranks.group import ALONE, Ranks, joined, leave
from distrl.ranks.place import LOOPBACK, Place

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["pytest", "distrl.learner.ranks", "distrl.policy.autoui.policy"])
"""Imported once for all of them: each would else take seconds for torch and the model's library."""

Task = Callable[..., Any]
"""(ranks, *arguments) -> what the test asked for. A function of a module."""


class Group:
    """The ranks of one test. `results` waits for them."""

    def __init__(self, world: int, task: Task, *arguments: Any, answer_s: float = 120.0) -> None:
        self._listener = socket.create_server((LOOPBACK, 0))
        port = self._listener.getsockname()[1]
        self.processes, self._pipes = [], list[Connection]()
        for rank in range(world):
            mine, theirs = PROCESSES.Pipe()
            self._pipes.append(mine)
            listener = self._listener if rank == 0 else None
            process = PROCESSES.Process(
                target=_rank,
                args=(Place(rank, world, rank), port, listener, theirs, answer_s, task, *arguments),
                daemon=True,
            )
            process.start()
            theirs.close()
            self.processes.append(process)
        self._listener.close()

    def results(self, timeout_s: float = 300.0) -> list[Any]:
        """What each rank came to: the result of the task, or its error. None of one that was killed."""
        found = []
        for process, pipe in zip(self.processes, self._pipes, strict=True):
            assert pipe.poll(timeout_s), "a rank does not end"
            try:
                found.append(pipe.recv())
            except EOFError:
                found.append(None)
            process.join(timeout_s)
        return found


def results(world: int, task: Task, *arguments: Any) -> list[Any]:
    """The results of `task` on `world` ranks. Raises the error of the first rank that has one."""
    found = Group(world, task, *arguments).results()
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


def _rank(
    place: Place,
    port: int,
    listener: socket.socket | None,
    pipe: Connection,
    answer_s: float,
    task: Task,
    *arguments: Any,
) -> None:
    os.environ |= place.environ(port)
    os.environ["GLOO_SOCKET_IFNAME"] = next(
        name for name, each in psutil.net_if_addrs().items() if any(one.address == LOOPBACK for one in each)
    )
    try:
        ranks = joined(place, answer_s, threading.Event(), listener) if place.world > 1 else ALONE
        assert isinstance(ranks, Ranks)
        pipe.send(task(ranks, *arguments))
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        pipe.send(error)
    finally:
        leave()
