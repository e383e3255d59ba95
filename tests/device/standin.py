"""What a test does with stand-in emulators: a folder of virtual devices, settings that name them, faults."""

from __future__ import annotations

import json
import os
import random
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from distrl import config

LONG_S = 20.0
FIRST_PORT, END_PORT = 5600, 5684
"""Console ports, above those that adb servers probe (5555 to 5585)."""
PROGRAM = Path(__file__).with_name("emulator_standin.py")
AVD = "distrl"


class Standin:
    """The stand-in in `folder`, with the virtual device AVD. Its faults hold for every emulator started from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "avd" / AVD).mkdir(parents=True)
        self.binary = folder / "emulator"
        self.binary.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$@"\n')
        self.binary.chmod(0o755)
        self.token = folder / "token"
        self.state = folder / "state"

    def faults(self, **said: Any) -> None:
        beside = self.folder / "faults.new"
        beside.write_text(json.dumps(said))
        beside.replace(self.folder / "faults.json")

    def devices(self, count: int = 1, operation_timeout_s: float = LONG_S, **settings: Any) -> config.DeviceSettings:
        emulators = {
            "avd": AVD,
            "count": count,
            "first_port": free_console_port(count),
            "binary": self.binary,
            "token_file": self.token,
            "boot_timeout_s": 60,
            "snapshot_timeout_s": 30,
            **settings,
        }
        return config.DeviceSettings.model_validate(
            {
                "emulators": emulators,
                "directory": self.state,
                "operation_timeout_s": operation_timeout_s,
                "settle_timeout_s": LONG_S,
                "lease_ttl_s": 3 * LONG_S,
            }
        )

    def started(self) -> list[list[Any]]:
        """Pid and arguments of every start, in order."""
        file = self.folder / "started"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def running(self) -> list[int]:
        """Pids of those that still run."""
        return [pid for pid, *_ in self.started() if psutil.pid_exists(pid) and not _zombie(pid)]

    def asked(self, port: int) -> list[str]:
        """What its console was asked, but for `auth`."""
        file = self.folder / f"asked-{port}"
        return file.read_text().splitlines() if file.exists() else []

    def kill_left(self) -> None:
        for pid in self.running():
            os.kill(pid, 9)


def free_console_port(count: int) -> int:
    """An even port with 2 * count free ones from there on, of this process's own: between the choice of a port and the
    start of an emulator there, a test of another process may choose."""
    lowest, end = FIRST_PORT, END_PORT
    if (worker := os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")).isdigit():
        share = (END_PORT - FIRST_PORT) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]) // 2 * 2
        lowest += share * int(worker)
        end = lowest + share
    firsts = range(lowest, end - 2 * count + 1, 2)
    for first in random.sample(firsts, len(firsts)):
        with ExitStack() as held:
            try:
                for port in range(first, first + 2 * count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise AssertionError("no free console ports")


def _zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
