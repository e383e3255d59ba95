from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress

import pytest
from distrl.stack import ports
from simphone.faults import Fault
from simphone.fleet import FleetSettings, SettingError
from simphone.serve import PhonesInThread

SERVE = (
    "from simphone.fleet import FleetSettings; from simphone.serve import run_phones; import sys; "
    "run_phones(FleetSettings(count=1, base_port=int(sys.argv[1])))"
)


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


def test_a_phone_that_is_gone_refuses_connections_and_comes_back() -> None:
    with PhonesInThread(FleetSettings(count=1, base_port=free_port())) as phones:
        (phone,) = phones.fleet
        with ExitStack() as open_ones:
            connection = open_ones.enter_context(socket.create_connection((phone.host, phone.port), timeout=2))
            phone.faults.set(Fault.GONE, 0.3)
            with suppress(ConnectionResetError):  # accepted before: ended in order; not yet: reset
                assert connection.recv(1) == b""
            assert refuses(phone.port)
        end = time.monotonic() + 3
        while refuses(phone.port):
            assert time.monotonic() < end


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
        assert process.wait(5) == 0
        assert process.stdout.read() == ""
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert refuses(port)
