from __future__ import annotations

import errno
import os
import signal
import socket
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from distrl import config
from distrl.device import server as server_module
from distrl.device.errors import AdbServerGone, DeviceGone, DeviceTimeout
from distrl.device.server import AdbServer
from distrl.errors import DeviceError

from .conftest import LONG_S, free_ports


def test_a_server_that_runs_is_used_and_left_running(adb: AdbServer) -> None:
    with AdbServer(adb.adb) as second:
        assert second.pid is None
        assert second.version() >= 39
    assert adb.version() >= 39


def test_our_own_is_stopped_at_the_end() -> None:
    settings = config.AdbSettings(port=free_ports(1))
    with AdbServer(settings) as own:
        assert own.pid is not None
        assert own.devices() == {}
    with pytest.raises(DeviceError, match="no adb server answers"):
        AdbServer(settings).version()


def test_our_own_stays_where_others_drive_phones_by_it() -> None:
    settings = config.AdbSettings(port=free_ports(1))
    with AdbServer(settings, needed=lambda: True) as own:
        pid = own.pid
    assert pid is not None
    try:
        assert AdbServer(settings).version() >= 39
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_our_own_survives_a_kill_server_that_was_meant_for_another(adb: AdbServer) -> None:
    with pytest.raises(DeviceError):
        adb.ask("host:kill")
    assert adb.version() >= 39


def test_something_else_on_the_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            for _ in range(2):
                peer, _address = listener.accept()
                peer.sendall(b"OKAY0005hello")
                peer.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DeviceError):
            AdbServer(config.AdbSettings(port=listener.getsockname()[1])).start()
        thread.join()


def test_a_binary_that_is_none_is_said(tmp_path: Path) -> None:
    settings = config.AdbSettings(port=free_ports(1), binary=tmp_path / "adb")
    with pytest.raises(DeviceError, match=r"adb\.binary"):
        AdbServer(settings).start()


def test_a_server_that_does_not_start_is_said_with_its_last_words(tmp_path: Path) -> None:
    binary = tmp_path / "adb"
    binary.write_text("#!/bin/sh\necho cannot make a home >&2\nexit 1\n")
    binary.chmod(0o755)
    settings = config.AdbSettings(port=free_ports(1), binary=binary)
    for log in (None, tmp_path / "log" / "adb.log"):
        with pytest.raises(DeviceError, match="cannot make a home"):
            AdbServer(settings, log=log).start()


def test_two_that_start_at_once_share_one() -> None:
    settings = config.AdbSettings(port=free_ports(1))
    servers = [AdbServer(settings) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(AdbServer.start, servers))
    assert all(server.version() >= 39 for server in servers)
    for server in servers:
        server.stop()
    with pytest.raises(DeviceError, match="no adb server answers"):
        servers[0].version()


def test_those_that_ask_a_slow_server_wait_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers once all of them have asked: one that waited for another's answer would wait for ever."""
    monkeypatch.setattr(AdbServer.ask, "__defaults__", (2 * LONG_S, None))
    askers = 4
    asked = threading.Barrier(askers)

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(threading.BrokenBarrierError):
                if self.request.recv(64):  # a look whether somebody listens asks nothing
                    asked.wait(LONG_S)
                    self.request.sendall(b"OKAY00040029")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as slow:
        serving = threading.Thread(target=slow.serve_forever, args=(0.01,))
        serving.start()
        try:
            server = AdbServer(config.AdbSettings(port=slow.server_address[1]))
            with ThreadPoolExecutor(askers) as threads:
                assert list(threads.map(lambda _: server.start(), range(askers))) == [False] * askers
        finally:
            slow.shutdown()
            serving.join()


def test_our_own_that_is_slow_to_take_a_connection_stays_ours_and_no_second_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = AdbServer(config.AdbSettings(port=free_ports(1)))
    assert server.start()
    pid = server.pid

    def slow(host: str, port: int, timeout_s: float) -> socket.socket:
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr(server_module, "dial", slow)
        assert not server.start()
    assert server.pid == pid
    server.stop()
    with pytest.raises(DeviceError, match="no adb server answers"):
        server.version()


def test_our_own_that_hangs_is_replaced_after_a_while_and_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config.AdbSettings(port=free_ports(1))
    with AdbServer(settings) as server:
        hung = some_pid(server)
        os.kill(hung, signal.SIGSTOP)
        with monkeypatch.context() as patch:
            patch.setattr(AdbServer.ask, "__defaults__", (0.5, None))
            patch.setattr(server_module, "STOP_S", 0.5)
            with pytest.raises(DeviceTimeout):
                server.start()
            assert server.pid == hung
            patch.setattr(server_module, "HUNG_S", 0.0)
            with pytest.raises(DeviceTimeout):
                AdbServer(settings).start()
            assert server.start()
        assert server.pid not in (None, hung)
        assert AdbServer(settings).start() is False
        assert not psutil.pid_exists(hung)


def some_pid(server: AdbServer) -> int:
    assert server.pid is not None
    return server.pid


def test_a_machine_without_files_left_is_what_is_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(host: str, port: int, timeout_s: float) -> socket.socket:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(server_module, "dial", full)
    with pytest.raises(AdbServerGone, match="Too many open files"):
        AdbServer(config.AdbSettings(port=free_ports(1))).start()


def spawned(folder: Path, usb: bool = False) -> list[str]:
    """The environment of a server of our own, NAME=value each."""
    binary = folder / "adb"
    binary.write_text("#!/bin/sh\nenv\nexit 1\n")
    binary.chmod(0o755)
    log = folder / "env"
    with pytest.raises(DeviceError):
        AdbServer(config.AdbSettings(port=free_ports(1), binary=binary, usb=usb), log=log).start()
    return log.read_text().splitlines()


def test_our_own_does_not_look_for_emulators(tmp_path: Path) -> None:
    assert {"ADB_EMU=0", "ADB_LOCAL_TRANSPORT_MAX_PORT=5554", "ADB_MDNS=0", "ADB_USB=0"} <= set(spawned(tmp_path))


def test_our_own_looks_for_phones_on_usb_where_that_is_set(tmp_path: Path) -> None:
    assert not [line for line in spawned(tmp_path, usb=True) if line.startswith("ADB_USB=")]


def test_none_is_started_for_another_machine() -> None:
    with pytest.raises(DeviceError, match="another machine"):
        AdbServer(config.AdbSettings(host="127.1.2.3", port=1)).start()


def test_a_port_where_no_phone_is_cannot_be_connected(adb: AdbServer) -> None:
    address = f"127.0.0.1:{free_ports(1)}"
    with pytest.raises(DeviceGone):
        adb.connect(address)
    adb.disconnect(address)
