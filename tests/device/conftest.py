"""A real adb server on a port of its own, and simulated phones behind it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

import adbutils
import pytest
from distrl import config
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.stack import ports
from simphone.fleet import FleetSettings, PhoneProfile
from simphone.serve import PhonesInThread, SimulatedPhone

from .standin import Standin

LONG_S = 20.0
"""A deadline that a machine with much other work keeps too. What answers is given this one."""
SLACK_S = 30.0
"""How late after its deadline an operation may give up on such a machine; test_deadlines.py measures how late it is."""
DEADLINES_S = (1.0, 4.0, LONG_S)


def free_ports(count: int) -> int:
    """The first of `count` free ports in a row."""
    return ports.draw("the tests", count=count)


class PatientServer(AdbServer):
    """Gives a phone of this process the time to be connected that a machine with much other work needs."""

    def connect(self, address: str, timeout_s: float = LONG_S) -> None:
        super().connect(address, timeout_s)


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdbServer]:
    log: Path = tmp_path_factory.mktemp("adb") / "adb.log"
    with PatientServer(config.AdbSettings(port=free_ports(1)), log=log) as server:
        yield server


class StartPhones(Protocol):
    def __call__(
        self, count: int, keyboard_service: bool = False, profiles: tuple[PhoneProfile, ...] = ()
    ) -> list[SimulatedPhone]: ...


@pytest.fixture
def start_phones(adb: AdbServer) -> Iterator[StartPhones]:
    """Starts that many phones without latency or pop-ups; they are forgotten by the adb server at the end."""
    with ExitStack() as running:

        def start(
            count: int, keyboard_service: bool = False, profiles: tuple[PhoneProfile, ...] = ()
        ) -> list[SimulatedPhone]:
            settings = FleetSettings(
                count=count,
                base_port=free_ports(count),
                latency_median_ms=0,
                popup_probability=0,
                keyboard_service=keyboard_service,
                profiles=profiles,
            )
            fleet = running.enter_context(PhonesInThread(settings)).fleet
            for phone in fleet:
                running.callback(adb.disconnect, phone.address)
            return list(fleet)

        yield start


@pytest.fixture
def phone(start_phones: StartPhones) -> SimulatedPhone:
    return start_phones(1)[0]


@pytest.fixture
def timeouts() -> config.DeviceSettings:
    """For phones that answer; `hurried` is for those that do not."""
    return config.DeviceSettings(
        lease_ttl_s=3 * LONG_S,
        operation_timeout_s=LONG_S,
        settle_timeout_s=LONG_S,
        settle_poll_s=0.01,
        settle_unchanged_s=0.0,
    )


def hasty(devices: config.DeviceSettings, seconds: float) -> config.DeviceSettings:
    """The same with short deadlines."""
    return devices.model_copy(update={"operation_timeout_s": seconds, "settle_timeout_s": seconds})


@contextmanager
def hurried(session: AdbSession, seconds: float = 0.5) -> Iterator[AdbSession]:
    """Within the block the session's deadlines are short, as the phone will not answer, or not with a good picture."""
    patient = session._devices
    session._devices = hasty(patient, seconds)
    try:
        yield session
    finally:
        session._devices = patient


def given_time(check: Callable[[float], None], deadlines_s: Sequence[float] = DEADLINES_S) -> None:
    """Run `check` with longer and longer deadlines until one is long enough for this machine.

    For what ends at its deadline, and has to have done something before it: a long one at once would cost its length.
    """
    for seconds in deadlines_s[:-1]:
        with suppress(AssertionError, DeviceError, pytest.fail.Exception):
            return check(seconds)
    return check(deadlines_s[-1])


@pytest.fixture
def session(adb: AdbServer, phone: SimulatedPhone, timeouts: config.DeviceSettings) -> AdbSession:
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
