from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from distrl import config
from distrl.device.adb_protocol import MAX_ANSWER, Connection, Deadline
from distrl.device.errors import DeviceGarbage, DeviceGone, DeviceTimeout

from .conftest import LONG_S, SLACK_S


@contextmanager
def server_that(answers: Callable[[socket.socket], None]) -> Iterator[config.AdbSettings]:
    """An adb server that misbehaves as a real one cannot be made to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                try:
                    asked = int(peer.recv(4, socket.MSG_WAITALL), 16)
                    peer.recv(asked, socket.MSG_WAITALL)
                    answers(peer)
                except OSError:
                    pass  # the client gave up, as it should

        thread = threading.Thread(target=serve)
        thread.start()
        yield config.AdbSettings(port=listener.getsockname()[1])
        thread.join()


def ask(adb: config.AdbSettings, request: str, seconds: float = LONG_S) -> str:
    with Connection(adb, "sim", Deadline(seconds)) as connection:
        connection.request(request)
        return connection.read_text()


def test_a_byte_at_a_time_does_not_stretch_the_deadline() -> None:
    def trickle(peer: socket.socket) -> None:
        for byte in b"OKAY" + b"1000" + bytes(4096):
            peer.sendall(bytes([byte]))
            time.sleep(0.05)

    with server_that(trickle) as adb:
        started = time.monotonic()
        with pytest.raises(DeviceTimeout):
            ask(adb, "host:version", 0.4)
        assert time.monotonic() - started < 0.4 + SLACK_S  # the whole answer takes 205 s


def test_refusal_carries_the_servers_words() -> None:
    offline = b"FAIL000edevice offline"
    with server_that(lambda peer: peer.sendall(offline)) as adb, pytest.raises(DeviceGone, match="device offline"):
        ask(adb, "host:transport:sim")


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b"OKAYzzzz"])
def test_what_is_no_answer_is_garbage(answer: bytes) -> None:
    with server_that(lambda peer: peer.sendall(answer)) as adb, pytest.raises(DeviceGarbage):
        ask(adb, "host:version")


@pytest.mark.parametrize("packet", [struct.pack("<BI", 9, 1) + b"x", struct.pack("<BI", 1, MAX_ANSWER + 1)])
def test_a_packet_of_no_kind_or_any_size_is_garbage(packet: bytes) -> None:
    with (
        server_that(lambda peer: peer.sendall(b"OKAY" + packet)) as adb,
        Connection(adb, "sim", Deadline(LONG_S)) as connection,
    ):
        connection.request("shell,v2,raw:echo")
        with pytest.raises(DeviceGarbage, match="packet"):
            connection.read_command()


def test_output_without_an_exit_code_is_a_broken_connection() -> None:
    with (
        server_that(lambda peer: peer.sendall(b"OKAY" + struct.pack("<BI", 1, 2) + b"ok")) as adb,
        Connection(adb, "sim", Deadline(LONG_S)) as connection,
    ):
        connection.request("shell,v2,raw:echo")
        with pytest.raises(DeviceGone, match="before the answer was complete"):
            connection.read_command()
