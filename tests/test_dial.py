"""A deadline is one deadline, whatever the name resolves to, and for every client that has one."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from distrl import config
from distrl.chat.http import HttpClient, UnansweredError
from distrl.device.errors import DeviceTimeout
from distrl.device.server import AdbServer
from distrl.dial import dial
from distrl.errors import StoreError
from distrl.stack import ports
from distrl.store.objects import open_store

DEADLINE_S = 0.5
SLACK_S = 20.0
"""How late a deadline may be on a busy machine. Dead addresses with a deadline each would take 32 s."""
DEAD = [f"127.0.0.{last}" for last in range(2, 66)]
GIVE_UP_S = 60.0
"""After which a resolver that hangs answers after all, so that a failing test ends."""
AMPLE_S = 60.0
"""For what takes no time."""

Resolver = Callable[[str, list[str]], None]
real = socket.getaddrinfo


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    """Gives a name its addresses; without any, its resolver hangs until the test ends."""
    names, ended = dict[str, list[str]](), threading.Event()

    def getaddrinfo(host: str, port: int, *more: object, **named: object) -> list[object]:
        if host not in names:
            return real(host, port, *more, **named)
        if not names[host]:
            ended.wait(GIVE_UP_S)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in names[host]]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield names.__setitem__
    ended.set()


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port of the DEAD addresses that answers no connect: the queues of its listeners are full."""
    port = ports.draw("the tests")
    with ExitStack() as open_:
        for address in DEAD:
            listener = open_.enter_context(socket.socket())
            listener.bind((address, port))
            listener.listen(0)
            for _ in range(4):
                filler = open_.enter_context(socket.socket())
                filler.setblocking(False)
                with suppress(BlockingIOError):
                    filler.connect((address, port))
        yield port


def _adb(host: str, port: int) -> None:
    with pytest.raises(DeviceTimeout, match=r"connecting to the adb server took longer than 0\.5 s"):
        AdbServer(config.AdbSettings(host=host, port=port)).ask("host:version", DEADLINE_S)


def _store(host: str, port: int) -> None:
    keys = {"access_key": "key", "secret_key": "secret"}
    store = open_store(
        config.StoreSettings.model_validate({"url": f"s3://{host}:{port}/objects", "timeout_s": DEADLINE_S} | keys)
    )
    with pytest.raises(StoreError, match="no S3 endpoint answers"):
        store.get_named("key")


def _chat(host: str, port: int) -> None:
    with pytest.raises(UnansweredError, match=r"within 0\.5 s"):
        HttpClient().post(f"http://{host}:{port}/", {}, {}, DEADLINE_S)


def _listens(host: str, port: int) -> None:
    assert not ports.listens(port, host, DEADLINE_S)


def _dial(host: str, port: int) -> None:
    with pytest.raises(TimeoutError, match=host):
        dial(host, port, DEADLINE_S)


CLIENTS = pytest.mark.parametrize("client", [_dial, _adb, _store, _chat, _listens])


@CLIENTS
def test_a_name_with_several_dead_addresses_costs_one_deadline(
    resolve: Resolver, dead_port: int, client: Callable[[str, int], None]
) -> None:
    resolve("many.test", DEAD)
    began = time.monotonic()
    client("many.test", dead_port)
    assert DEADLINE_S * 0.9 < time.monotonic() - began < DEADLINE_S + SLACK_S


@CLIENTS
def test_a_resolver_that_hangs_costs_one_deadline(resolve: Resolver, client: Callable[[str, int], None]) -> None:
    name = f"hangs-{client.__name__.strip('_')}.test"
    resolve(name, [])
    began = time.monotonic()
    client(name, 1)
    assert DEADLINE_S * 0.9 < time.monotonic() - began < DEADLINE_S + SLACK_S


def test_a_resolver_that_hangs_holds_one_thread_for_a_name(resolve: Resolver) -> None:
    resolve("hangs.test", [])
    before = set(threading.enumerate())
    for _ in range(5):
        with pytest.raises(TimeoutError, match=r"hangs\.test was not resolved within 0\.01 s"):
            dial("hangs.test", 1, 0.01)
    assert [each.name for each in set(threading.enumerate()) - before].count("resolver") == 1


def test_a_thread_that_cannot_be_started_costs_one_call(resolve: Resolver, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit of threads or processes, which is reached for a moment."""

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolve("many.test", ["127.0.0.1"])
    with socket.create_server(("127.0.0.1", 0)) as server:
        with monkeypatch.context() as limited:
            limited.setattr(threading.Thread, "start", refused)
            with pytest.raises(OSError, match=r"no thread to resolve many\.test: can't start new thread"):
                dial("many.test", server.getsockname()[1], DEADLINE_S)
        dial("many.test", server.getsockname()[1], AMPLE_S).close()


def test_an_address_that_is_dead_or_refuses_leaves_time_for_one_that_answers(resolve: Resolver, dead_port: int) -> None:
    with socket.create_server(("127.0.0.1", dead_port)):
        refuses = [f"127.0.1.{last}" for last in range(1, 59)]
        resolve("some.test", [DEAD[0], *refuses, "127.0.0.1"])  # so many that the dead one gets but a second of it
        with dial("some.test", dead_port, AMPLE_S) as sock:
            assert sock.getpeername() == ("127.0.0.1", dead_port)
            assert sock.gettimeout() == AMPLE_S


def test_a_name_that_cannot_be_encoded_is_one_without_an_address() -> None:
    with pytest.raises(socket.gaierror, match=r"'10\.0\.\.5' is no name of a host"):
        dial("10.0..5", 9000, 1.0)


def test_what_the_last_address_said_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports.draw("the tests")
    with pytest.raises(ConnectionRefusedError):
        dial("localhost", port, AMPLE_S)

    def unknown(*_: object, **__: object) -> None:
        """As the system's resolver, which may ask servers that do not answer."""
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(socket.gaierror):
        dial("no such name", port, AMPLE_S)
