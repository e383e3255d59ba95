"""A real adb server on a port of its own, and simulated phones behind it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import adbutils
import pytest
from distrl import config
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.phone.serve import PhonesInThread, SimulatedPhone
from distrl.stack import ports

from .standin import Standin


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    return ports.draw("the tests", count=count)


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    log: Path = tmp_path_factory.mktemp("adb") / "adb.log"
    with AdbServer(config.Adb(port=free_ports(1)), log=log) as server:
        yield server


class StartPhones(Protocol):
    def __call__(self, count: int, keyboard_service: bool = False) -> list[SimulatedPhone]: ...


@pytest.fixture
def start_phones(adb: AdbServer) -> Iterator[StartPhones]:
    """Starts that many phones without latency or pop-ups; they are forgotten by the adb server at the end."""
    with ExitStack() as running:

        def start(count: int, keyboard_service: bool = False) -> list[SimulatedPhone]:
            phones = config.Phones(
                count=count,
                evaluation_count=0,
                base_port=free_ports(count),
                latency_median_ms=0,
                popup_probability=0,
                keyboard_service=keyboard_service,
            )
            fleet = running.enter_context(PhonesInThread(phones)).fleet
            for phone in fleet:
                running.callback(adb.disconnect, phone.address)
            return list(fleet)

        yield start


@pytest.fixture
def phone(start_phones: StartPhones) -> SimulatedPhone:
    return start_phones(1)[0]


@pytest.fixture
def timeouts() -> config.Devices:
    return config.Devices(operation_timeout_s=1.0, settle_timeout_s=1.0, settle_poll_s=0.01, settle_unchanged_s=0.0)


@pytest.fixture
def session(adb: AdbServer, phone: SimulatedPhone, timeouts: config.Devices) -> AdbSession:
    adb.connect(phone.address)
    return AdbSession(adb, phone.address, timeouts)


RunAdb = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def adb_program(session: AdbSession) -> list[str]:
    return [adbutils.adb_path(), "-P", str(session.server.adb.port), "-s", session.serial]


@pytest.fixture
def run_adb(adb_program: list[str]) -> RunAdb:
    """The adb program as a person starts it."""

    def run(*words: str | Path, said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        command = [*adb_program, *map(str, words)]
        return subprocess.run(command, input=said, capture_output=True, timeout=30, check=False)

    return run


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Standin]:
    """Stand-in emulators; the test has to have ended those that it started."""
    found = Standin(tmp_path / "standin")
    monkeypatch.setenv("STANDIN", str(found.folder))
    yield found
    left = found.running()
    found.kill_left()
    assert left == [], "emulators were left running"
