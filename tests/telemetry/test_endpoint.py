"""The HTTP server of a role: real sockets, and clients that do what they should not."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from distrl.errors import ConfigError
from distrl.stack import ports
from distrl.telemetry import endpoint
from distrl.telemetry.endpoint import Answer, Endpoint
from waiting import until

HOST = "127.0.0.1"
PATIENCE_S = 60.0
"""Of a client here. Far longer than anything takes on a busy machine."""


def pages(path: str, accept: str) -> Answer:
    if path == "/broken":
        raise RuntimeError("a page that fails")
    return Answer(200, "text/plain", f"{path} {accept}".encode())


@pytest.fixture
def port() -> Iterator[int]:
    port = ports.draw("a test")
    with Endpoint(HOST, port, pages):
        yield port


def get(port: int, path: str = "/here", method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE_S)
    try:
        connection.request(method, path, headers={"Accept": "this"})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def until_closed(client: socket.socket) -> bytes:
    client.settimeout(PATIENCE_S)
    try:
        return b"".join(iter(lambda: client.recv(4096), b""))
    except ConnectionResetError:
        return b""


def test_a_page_is_given_its_path_and_what_is_accepted(port: int) -> None:
    assert get(port, "/here?a=b") == (200, b"/here this")
    assert get(port, method="HEAD") == (200, b"")
    assert get(port, method="POST") == (405, b"")


def test_a_page_that_fails_is_an_error_of_that_request_alone(port: int) -> None:
    assert get(port, "/broken")[0] == 500
    assert get(port)[0] == 200


def test_a_client_that_never_sends_and_one_that_sends_a_byte_now_and_then_are_left_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = ports.draw("a test")
    with Endpoint(HOST, port, pages):
        with monkeypatch.context() as short:
            short.setattr(endpoint, "EXCHANGE_S", 0.5)
            with socket.create_connection((HOST, port)) as silent, socket.create_connection((HOST, port)) as slow:
                until(lambda: _reset(slow), "it to be left, though each byte comes in time", every_s=0.05)
                assert until_closed(silent) == b""
        assert get(port)[0] == 200


def test_a_request_of_any_size_takes_little_room(port: int) -> None:
    with socket.create_connection((HOST, port)) as client:
        client.settimeout(PATIENCE_S)
        sent = 0
        with suppress(ConnectionError):
            while sent < 2**24:
                sent += client.send(b"GET /" + b"a" * 65_536)
        assert sent < 2**24, "it is closed while the sockets hold what is unread"
    assert get(port)[0] == 200


@pytest.mark.parametrize(
    "garbage", [b"\r\n\r\n", b"\x16\x03\x01\x02\r\n\r\n", b"GET\r\n\r\n", b"\xff \xff\xff\r\n\r\n"]
)
def test_what_is_no_http_is_answered_and_forgotten(port: int, garbage: bytes) -> None:
    with socket.create_connection((HOST, port)) as client:
        client.sendall(garbage)
        until_closed(client)
    assert get(port)[0] == 200


def test_a_client_that_reads_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "EXCHANGE_S", 0.5)
    port = ports.draw("a test")
    with (
        Endpoint(HOST, port, lambda *_: Answer(200, "text/plain", b"a" * 2**25)),
        socket.create_connection((HOST, port)) as client,
    ):
        client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        until(lambda: _reset(client), "it to be reset")


def _reset(client: socket.socket) -> bool:
    """Whether the other side has given the connection up; nothing is read."""
    try:
        client.send(b"a")
    except OSError:
        return True
    return False


def test_many_idle_connections_keep_no_probe_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "EXCHANGE_S", PATIENCE_S)  # the idle ones are not left in time for the probes
    idle = [socket.create_connection((HOST, port)) for _ in range(3 * endpoint.MOST_CLIENTS)]
    try:
        began = time.monotonic()
        assert [get(port)[0] for _ in range(5)] == [200] * 5
        assert time.monotonic() - began < PATIENCE_S, "before the idle ones are left for their deadline"
    finally:
        for client in idle:
            client.close()


def test_a_stop_waits_for_no_client_and_frees_the_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "EXCHANGE_S", PATIENCE_S)
    port = ports.draw("a test")
    for _ in range(2):
        with Endpoint(HOST, port, pages):
            client = socket.create_connection((HOST, port))
            began = time.monotonic()
        assert time.monotonic() - began < PATIENCE_S
        client.close()


def test_a_taken_port_and_a_foreign_address_are_refused_with_the_setting(port: int) -> None:
    with pytest.raises(ConfigError, match=rf"monitoring.port: {port} of {HOST} is taken"):
        Endpoint(HOST, port, pages)
    with pytest.raises(ConfigError, match=r"monitoring.host: 192\.0\.2\.1 cannot be listened on"):
        Endpoint("192.0.2.1", port, pages)
