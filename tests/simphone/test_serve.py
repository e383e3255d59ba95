from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress

import pytest
from distrl.stack import ports
from simphone.faults import Fault
from simphone.fleet import FleetSettings, SettingError
from simphone.serve import PhonesInThread
from waiting import WITHIN_S, until

SERVE = (
    "from simphone.fleet import FleetSettings; from simphone.serve import run_phones; import sys; "
    "run_phones(FleetSettings(count=1, base_port=int(sys.argv[1])))"
)

FEW_FILES = """
import asyncio, os, resource, sys
from simphone.fleet import FleetSettings, SettingError
from simphone.serve import SimulatedPhone

async def go():
    phone = SimulatedPhone(FleetSettings(count=1, base_port=int(sys.argv[1])), 0, "127.0.0.1")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    full = os.dup(0)
    os.close(full)
    resource.setrlimit(resource.RLIMIT_NOFILE, (full, hard))
    try:
        await phone.open()
    except SettingError as error:
        print(error)
    reopening = asyncio.create_task(phone._reopen())
    print("waits" if (await asyncio.wait({reopening}, timeout=0.3))[1] else "gave up")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await asyncio.wait_for(reopening, 20)
    await asyncio.open_connection(phone.host, phone.port)
    print("listens")
    phone.close()

asyncio.run(go())
"""
"""A phone where no file descriptor is left, then some are."""
MANY = """
import resource, socket, sys
from simphone.fleet import FleetSettings, SettingError
from simphone.serve import PhonesInThread

soft, hard, port = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    with PhonesInThread(FleetSettings(count=60, base_port=port)) as phones:
        print(sum(socket.socket().connect_ex((phone.host, phone.port)) == 0 for phone in phones.fleet))
except SettingError as error:
    print(error)
"""


def printed(script: str, *arguments: object) -> list[str]:
    """The lines that a process with limits of its own prints."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=30, check=True).stdout.splitlines()


def free_port() -> int:
    """A port with the next one free too."""
    return ports.draw("the tests", count=2)


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_port_in_use_is_named_with_its_setting_and_nothing_stays_open() -> None:
    port = free_port() + 1
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(SettingError, match=rf"^base_port: port {port} .*in use"),
    ):
        PhonesInThread(FleetSettings(count=2, base_port=port - 1)).__enter__()
    assert refuses(port - 1)


def test_a_phone_without_a_file_descriptor_says_which_limit_and_reopens_once_there_is_one() -> None:
    assert printed(FEW_FILES, free_port()) == [
        "count: no file descriptor is left for the port of simulated phone sim0; "
        "raise the limit of open files (ulimit -n) or serve fewer phones",
        "waits",
        "listens",
    ]


def test_all_phones_listen_or_none_is_ready_whatever_the_soft_limit_of_open_files() -> None:
    port = ports.draw("the tests", count=60)
    assert printed(MANY, 40, 400, port) == ["60"], "the soft limit is raised"
    (refused,) = printed(MANY, 40, 40, port)
    assert refused.startswith("count: no file descriptor is left for the port of simulated phone sim")
    assert refuses(port)


def test_a_phone_that_is_gone_refuses_connections_and_comes_back() -> None:
    with PhonesInThread(FleetSettings(count=1, base_port=free_port())) as phones:
        (phone,) = phones.fleet
        with ExitStack() as open_ones:
            connection = open_ones.enter_context(socket.create_connection((phone.host, phone.port), timeout=WITHIN_S))
            phone.faults.set(Fault.GONE)
            with suppress(ConnectionResetError):  # accepted before: ended in order; not yet: reset
                assert connection.recv(1) == b""
            assert refuses(phone.port)
        phone.faults.end(Fault.GONE)
        until(lambda: not refuses(phone.port), "it to be back")


def test_the_process_says_when_it_is_ready_and_ends_at_sigterm() -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(port)], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == f"ready: 1 simulated phones at 127.0.0.1, ports {port} to {port}\n"
        assert not refuses(port)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WITHIN_S) == 0
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert refuses(port)
