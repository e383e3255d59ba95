"""Every operation of a session, against everything that may stand still: one deadline, a typed error, no later."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import pytest
from distrl import config
from distrl.device.errors import AdbServerGone, DeviceGone, DeviceTimeout
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.types import Point
from simphone import shell
from simphone.commands.base import CommandResult
from simphone.faults import Fault
from simphone.serve import SimulatedPhone
from waiting import WITHIN_S

from .conftest import SLACK_S, StartPhones, free_ports, given_time, hasty
from .relay import Mode, Relay

DEADLINE_S = 0.6
PROMISE_S = 0.5
"""How much later after its deadline an operation may give up than a thread that only waits wakes up."""
TRIES = 10
"""In one of them no other work of the machine should come in between."""
PACKAGE = "com.sim.clock"
DEVICES = config.DeviceSettings(operation_timeout_s=DEADLINE_S, settle_timeout_s=DEADLINE_S, settle_unchanged_s=0.0)
OPERATIONS: dict[str, Callable[[AdbSession], object]] = {
    "tap": lambda session: session.tap(Point(0.5, 0.5)),
    "swipe": lambda session: session.swipe(Point(0.5, 0.5), Point(0.5, 0.1)),
    "type": lambda session: session.type_text("a"),
    "type beyond ASCII": lambda session: session.type_text("\u6f22"),
    "key": lambda session: session.key("BACK"),
    "screenshot": lambda session: session.screenshot(),
    "settle": lambda session: session.settle(),
    "shell": lambda session: session.shell("echo hi"),
    "focus": lambda session: session.focus(),
    "package in front": lambda session: session.package_in_front(),
    "launcher": lambda session: session.launcher(),
    "size": lambda session: session.size(),
    "start": lambda session: session.start_app(PACKAGE),
    "stop": lambda session: session.stop_app(PACKAGE),
}


Standstill = Callable[[AdbServer, SimulatedPhone], AbstractContextManager[tuple[AdbServer, str]]]
"""Brings a phone of an adb server to a standstill for the block, which gets the server and serial to ask."""


def failures(
    server: AdbServer, serial: str, seconds: float = DEADLINE_S
) -> dict[str, tuple[BaseException | None, float]]:
    """Each operation on a session of its own, all at once: what it raised, and after how many seconds.

    seconds: the deadline of each.
    """

    def one(operation: Callable[[AdbSession], object]) -> tuple[BaseException | None, float]:
        session = AdbSession(server, serial, hasty(DEVICES, seconds))
        began = time.monotonic()
        try:
            operation(session)
        except Exception as error:
            return error, time.monotonic() - began
        return None, time.monotonic() - began

    with ThreadPoolExecutor(len(OPERATIONS)) as threads:
        return dict(zip(OPERATIONS, threads.map(one, OPERATIONS.values()), strict=True))


@contextmanager
def waiting() -> Iterator[list[float]]:
    """For how many seconds a thread beside the block waits that only waits for DEADLINE_S; known after the block."""
    waited: list[float] = []

    def wait() -> None:
        began = time.monotonic()
        threading.Event().wait(DEADLINE_S)
        waited.append(time.monotonic() - began)

    thread = threading.Thread(target=wait)
    thread.start()
    yield waited
    thread.join()


@contextmanager
def silent(server: AdbServer, phone: SimulatedPhone) -> Iterator[tuple[AdbServer, str]]:
    server.connect(phone.address)
    phone.faults.set(Fault.SILENT)
    yield server, phone.address
    phone.faults.clear()


@contextmanager
def frozen_server(server: AdbServer, phone: SimulatedPhone) -> Iterator[tuple[AdbServer, str]]:
    with AdbServer(config.AdbSettings(port=free_ports(1))) as own:
        own.connect(phone.address)
        assert own.pid is not None
        os.kill(own.pid, signal.SIGSTOP)
        yield own, phone.address
        os.kill(own.pid, signal.SIGCONT)


def behind_the_server(mode: Mode) -> Standstill:
    """The phone's own connection to the adb server fails."""

    @contextmanager
    def failing(server: AdbServer, phone: SimulatedPhone) -> Iterator[tuple[AdbServer, str]]:
        with Relay(phone.port) as relay:
            server.connect(relay.address)
            relay.mode = mode
            yield server, relay.address
            server.disconnect(relay.address)

    return failing


def before_the_server(mode: Mode) -> Standstill:
    """Our own connection to the adb server fails."""

    @contextmanager
    def failing(server: AdbServer, phone: SimulatedPhone) -> Iterator[tuple[AdbServer, str]]:
        server.connect(phone.address)
        with Relay(server.adb.port) as relay:
            relay.mode = mode
            yield AdbServer(config.AdbSettings(port=relay.port)), phone.address

    return failing


STANDSTILLS: dict[str, Standstill] = {
    "a silent phone": silent,
    "a phone that is gone without a word": behind_the_server(Mode.HALF_OPEN),
    "a phone that answers a byte a second": behind_the_server(Mode.DRIP),
    "an adb server that is gone without a word": before_the_server(Mode.HALF_OPEN),
    "an adb server that answers a byte a second": before_the_server(Mode.DRIP),
    "a frozen adb server": frozen_server,
}


def test_all_operations_succeed_where_nothing_fails(adb: AdbServer, start_phones: StartPhones) -> None:
    """Else the tests below could pass for want of a phone."""
    (phone,) = start_phones(1, keyboard_service=True)
    adb.connect(phone.address)

    def all_succeed(seconds: float) -> None:
        assert {name: error for name, (error, _) in failures(adb, phone.address, seconds).items() if error} == {}

    given_time(all_succeed)


@pytest.mark.parametrize("name", STANDSTILLS)
def test_whatever_stands_still_costs_one_deadline(adb: AdbServer, phone: SimulatedPhone, name: str) -> None:
    late = dict.fromkeys(OPERATIONS, math.inf)
    with STANDSTILLS[name](adb, phone) as (server, serial):
        for _ in range(TRIES):
            with waiting() as only:
                found = failures(server, serial)
            assert {each: kind for each, (kind, _) in found.items() if not isinstance(kind, DeviceTimeout)} == {}
            assert {
                each: after for each, (_, after) in found.items() if not 0.9 * DEADLINE_S < after < DEADLINE_S + SLACK_S
            } == {}
            late = {each: min(late[each], after - only[0]) for each, (_, after) in found.items()}
            if max(late.values()) < PROMISE_S:
                break
    assert {each: after for each, after in late.items() if after >= PROMISE_S} == {}


@pytest.mark.parametrize("name", ["tap", "type beyond ASCII"])
def test_the_deadline_is_of_the_whole_operation_however_many_commands_it_takes(
    adb: AdbServer, start_phones: StartPhones, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A first tap asks for the size of the screen; each command alone would be in time."""
    (phone,) = start_phones(1, keyboard_service=True)
    adb.connect(phone.address)
    monkeypatch.setattr(shell, "SLOW_S", 0.9 * DEADLINE_S)
    phone.faults.set(Fault.SLOW)
    began = time.monotonic()
    with pytest.raises(DeviceTimeout):
        OPERATIONS[name](AdbSession(adb, phone.address, DEVICES))
    assert time.monotonic() - began < DEADLINE_S + SLACK_S


def test_an_adb_server_killed_in_the_middle_of_a_command_is_reported_at_once_and_then_by_name(
    phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone.faults.set(Fault.SLOW)
    killed: list[float] = []
    with AdbServer(config.AdbSettings(port=free_ports(1))) as own:
        own.connect(phone.address)
        pid, run = own.pid, shell.Shell.run
        assert pid is not None

        async def killing(self: shell.Shell, *args: Any, **more: Any) -> CommandResult:
            """The phone has been asked."""
            os.kill(pid, signal.SIGKILL)
            killed.append(time.monotonic())
            return await run(self, *args, **more)

        with monkeypatch.context() as patched:
            patched.setattr(shell.Shell, "run", killing)
            patient = DEVICES.model_copy(update={"operation_timeout_s": 10 * SLACK_S})
            with pytest.raises(DeviceGone, match="ended before the answer"):
                AdbSession(own, phone.address, patient).key("BACK")
        assert time.monotonic() - killed[0] < SLACK_S
        own.stop()  # waits: a process that is dying may still accept
        found = failures(own, phone.address)
        assert {name: error for name, (error, _) in found.items() if not isinstance(error, AdbServerGone)} == {}
        phone.faults.clear()
        own.stop()
        own.start()
        own.connect(phone.address)
        AdbSession(own, phone.address, patient).key("BACK")


def test_a_phone_that_restarts_is_gone_then_refuses_and_never_hangs(adb: AdbServer, phone: SimulatedPhone) -> None:
    adb.connect(phone.address)
    phone.faults.set(Fault.BOOTING)
    phone.faults.set(Fault.GONE)
    kinds: set[str] = set()

    def meets(wanted: str) -> bool:
        """Try until an operation ends so; a phone that has just begun to be gone may still refuse one."""
        end, now = time.monotonic() + WITHIN_S, set[str]()
        while wanted not in now and time.monotonic() < end:
            found = failures(adb, phone.address)
            now = {type(error).__name__ for error, _ in found.values() if error}
            kinds.update(now)
            assert {name: after for name, (_, after) in found.items() if after > DEADLINE_S + SLACK_S} == {}
            adb.disconnect(phone.address)
            with suppress(DeviceGone, DeviceTimeout):
                adb.connect(phone.address)
        return wanted in now

    assert meets("DeviceGone")
    phone.faults.end(Fault.GONE)
    assert meets("DeviceRefused")
    assert kinds <= {"DeviceGone", "DeviceOffline", "DeviceRefused", "DeviceGarbage", "DeviceTimeout"}
