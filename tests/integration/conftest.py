"""The real servers that the integration tests share: each started once a session, on free ports, stopped at its end.

The servers that the collected tests name are started together by the first that asks.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from distrl import config
from distrl.config import Config
from distrl.stack import adb, kafka, ports
from distrl.stack import s3 as object_store
from distrl.stack.part import Part, Site
from distrl.stack.processes import find_all, stop_all
from faults.proxy import Proxy
from fetching import cache
from policed import Policed, policed_store
from secured import Secured, secured_broker

SERVERS = ("broker", "s3", "adb_server")
STOP_S = 30.0

log = logging.getLogger(__name__)


def needed(items: list[pytest.Item]) -> set[str]:
    """The servers that the collected tests name, themselves or through their fixtures."""
    return {name for item in items for name in getattr(item, "fixturenames", ()) if name in SERVERS}


class Servers:
    """The servers of this session. `get` starts all that are needed at its first call and waits for one."""

    def __init__(self, directory: Path, names: set[str]) -> None:
        self.directory = directory
        self._site = Site(directory, cache(), threading.Event(), log.info)
        self._names = names
        self._pool = ThreadPoolExecutor(len(SERVERS))
        self._futures: dict[str, Future[Part]] = {}

    def get(self, name: str) -> Part:
        if not self._futures:
            free = draw_ports(4)
            starters: dict[str, Callable[[], Part]] = {
                "broker": lambda: kafka.start_kafka(self._site, {"heap_mb": 512}, free[0], free[1]),
                "s3": lambda: object_store.start_s3(self._site, {"object_store": "auto"}, free[2]),
                "adb_server": lambda: adb.start_adb(self._site, config.AdbSettings.model_validate({"port": free[3]})),
            }
            self._futures = {name: self._pool.submit(starters[name]) for name in SERVERS if name in self._names}
        return self._futures[name].result()

    def stop(self) -> None:
        self._site.cancelled.set()
        self._pool.shutdown(wait=True)
        stop_all(find_all(self.directory), STOP_S)


def draw_ports(count: int) -> list[int]:
    """Ports that nobody has, drawn at random so that two sessions on one machine seldom meet."""
    found: list[int] = []
    for _ in range(count):
        found.append(ports.draw("the tests", found))
    return found


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Servers]:
    started = Servers(tmp_path_factory.mktemp("servers"), needed(request.session.items))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def free_ports() -> Callable[[int], list[int]]:
    """Draws as many free ports as are asked for."""
    return draw_ports


@pytest.fixture(scope="session")
def free_row() -> Callable[[int], int]:
    """Draws the first of as many free ports in a row as are asked for: phones listen side by side."""
    return lambda count: ports.draw("the tests", count=count)


@pytest.fixture(scope="session")
def prepared() -> None:
    """Named by a test that starts a stack of its own: what that fetches and builds is there by now."""


@pytest.fixture(scope="session")
def broker(servers: Servers) -> str:
    """The bootstrap address of a real Kafka."""
    return servers.get("broker").where


@pytest.fixture(scope="session")
def s3(servers: Servers) -> config.StoreSettings:
    """An object store: a bucket of a real S3 endpoint, or (said after collection) a directory."""
    part = servers.get("s3")
    return object_store.fill(Config(), part, servers.directory).store


@pytest.fixture(scope="session")
def adb_server(servers: Servers) -> config.AdbSettings:
    """The address of a real adb server of our own."""
    return adb.fill(Config(), servers.get("adb_server")).adb


@pytest.fixture(scope="session")
def secured_server(tmp_path_factory: pytest.TempPathFactory, prepared: None) -> Iterator[Secured]:
    """A broker with TLS, passwords, certificates, tokens and rights."""
    with secured_broker(tmp_path_factory.mktemp("secured")) as found:
        yield found


@pytest.fixture(scope="session")
def policed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Policed]:
    """A MinIO with a user for each role."""
    with policed_store(tmp_path_factory.mktemp("policed"), log.info) as found:
        yield found


@pytest.fixture
def proxy(broker: str) -> Iterator[Proxy]:
    """What a test cuts between a role and the broker."""
    made = Proxy(int(broker.rpartition(":")[2]))
    yield made
    made.close()
