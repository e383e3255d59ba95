"""A port that another process takes before the child of ours listens."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from distrl.errors import StackError
from distrl.stack import ports
from distrl.stack.part import Part, Site
from distrl.stack.processes import CancelledError, find_all, start, stop_all
from distrl.stack.serving import TRIES, PortTakenError, serve, started_where_free

LISTENS = """
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
time.sleep(600)
"""
HANGS = "import time; time.sleep(600)"
FAILS = "raise SystemExit('no such disk')"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    yield Site(tmp_path, tmp_path, threading.Event(), lambda text: None)
    stop_all(find_all(tmp_path), 5.0)


@pytest.fixture
def stranger() -> Iterator[int]:
    """The port of somebody else's server."""
    with socket.create_server((ports.HOST, ports.draw("test"))) as server:
        yield server.getsockname()[1]


def served(site: Site, port: int, program: str = LISTENS, ready_s: float = 60.0) -> Part:
    child = start("server", [sys.executable, "-c", program, str(port)], site.directory)
    serve(child, (port,), lambda: child.listens(port), site, ready_s=ready_s, stop_s=5.0, hint="read its log")
    return Part("server", f"{ports.HOST}:{port}", {}, child)


def test_a_child_that_listens_is_ready(site: Site) -> None:
    part = served(site, ports.draw("test"))
    assert part.child is not None
    assert part.lives()
    assert not part.child.listens(ports.draw("test"))


def test_another_ones_server_is_not_taken_for_our_own(site: Site, stranger: int) -> None:
    with pytest.raises(
        PortTakenError, match=rf"server: port {stranger} of 127\.0\.0\.1 was taken by .* while it started"
    ):
        served(site, stranger)
    assert find_all(site.directory) == []


def test_a_child_that_does_not_end_where_its_port_is_taken_is_stopped(site: Site, stranger: int) -> None:
    with pytest.raises(PortTakenError):
        served(site, stranger, HANGS, ready_s=0.0)
    assert find_all(site.directory) == []


def test_a_child_that_fails_for_another_reason_says_which(site: Site) -> None:
    with pytest.raises(StackError, match="no such disk") as told:
        served(site, ports.draw("test"), FAILS)
    assert not isinstance(told.value, PortTakenError)


def test_a_start_that_was_cancelled_is_not_tried_again(site: Site, stranger: int) -> None:
    site.cancelled.set()
    with pytest.raises(CancelledError):
        started_where_free(site, lambda: stranger, lambda port: served(site, port, HANGS))()


def test_where_a_port_is_taken_meanwhile_another_is_chosen(site: Site, stranger: int) -> None:
    said: list[str] = []
    chosen = iter([stranger, stranger, ports.draw("test")])
    site = replace(site, report=said.append)
    part = started_where_free(site, lambda: next(chosen), lambda port: served(site, port))()
    assert part.lives()
    assert part.where != f"{ports.HOST}:{stranger}"
    assert len(said) == 2
    assert "starting it again at another port" in said[0]


def test_a_port_that_a_person_has_set_is_not_exchanged(site: Site, stranger: int) -> None:
    chosen = iter([stranger])

    def choose() -> int:
        return next(chosen, None) or ports.choose(stranger, explicit=True, setting="x.port")

    with pytest.raises(StackError, match=r"x\.port: port .* is in use by"):
        started_where_free(site, choose, lambda port: served(site, port))()


def test_who_finds_no_free_port_gives_up(site: Site, stranger: int) -> None:
    tried: list[int] = []

    def start_there(port: int) -> Part:
        tried.append(port)
        return served(site, port)

    with pytest.raises(PortTakenError):
        started_where_free(site, lambda: stranger, start_there)()
    assert tried == [stranger] * TRIES
