"""Ports: the wanted one if it is free, another one if nobody has asked for it, an error if somebody has."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from distrl.errors import StackError
from distrl.stack import ports


@pytest.fixture
def listener() -> Iterator[int]:
    """A port that somebody listens on."""
    with socket.socket() as server:
        server.bind((ports.HOST, ports.draw("test")))
        server.listen()
        yield server.getsockname()[1]


def test_a_free_port_is_taken_as_wanted() -> None:
    wanted = ports.draw("test", count=3)
    assert ports.choose(wanted, explicit=True, setting="x", count=3) == wanted


def test_a_port_in_use_that_a_person_named_is_an_error_that_names_who_is_there(listener: int) -> None:
    with pytest.raises(StackError) as told:
        ports.choose(listener, explicit=True, setting="stack.kafka_port")
    assert told.value.where == "stack.kafka_port"
    assert f"port {listener}" in told.value.what
    assert f"process {os.getpid()}" in told.value.what


def test_a_default_port_in_use_is_replaced(listener: int) -> None:
    found = ports.choose(listener, explicit=False, setting="x")
    assert found != listener
    assert found >= 20_000
    assert ports.is_free(found)


def test_a_range_is_refused_for_one_port_in_its_middle(listener: int) -> None:
    with pytest.raises(StackError, match=f"port {listener}"):
        ports.choose(listener - 2, explicit=True, setting="phones.base_port", count=5)


def test_what_is_promised_to_another_part_is_not_free() -> None:
    wanted = ports.draw("test")
    assert ports.choose(wanted, explicit=False, setting="x", taken=[wanted]) != wanted
    with pytest.raises(StackError):
        ports.choose(wanted, explicit=True, setting="x", taken=[wanted])


def test_listens_tells_an_open_port_from_a_closed_one(listener: int) -> None:
    assert ports.listens(listener)
    assert not ports.listens(ports.draw("test"))
    assert not ports.is_free(listener)


def test_nobody_sees_a_look_whether_a_port_is_free() -> None:
    """A server of another process may start there, and its clients look for it."""
    port = ports.draw("test")
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            ports.is_free(port)

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            assert not any(ports.listens(port) for _ in range(5000))
            for _ in range(300):
                socket.create_server((ports.HOST, port)).close()
        finally:
            done.set()
        looking.result(30)


def test_a_port_that_a_closed_connection_lingers_on_is_free() -> None:
    port = ports.draw("test")
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((ports.HOST, port))
        server.listen()
        client = socket.create_connection((ports.HOST, port))
        server.accept()[0].close()  # the server's end closes first, so its port keeps the lingering connection
        client.close()
    assert ports.is_free(port)


def test_a_port_that_was_just_drawn_is_not_drawn_again_though_nobody_listens_there_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The one who asked for it is about to."""
    first = ports.draw("test", count=12)
    ports.DRAWN.clear()
    monkeypatch.setattr(ports, "LOWEST", first)
    monkeypatch.setattr(ports, "HIGHEST", first + 12)
    found = [ports.draw("test") for _ in range(8)]
    assert len(set(found)) == len(found)
    with pytest.raises(StackError, match="no 8 free ports"):
        ports.draw("test", count=8)
