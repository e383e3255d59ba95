"""The servers of the fault tests: their own, so that killing one disturbs nobody; whole again before every test."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fetching import cache

from faults.cluster import Cluster
from faults.live import Json, LiveRun, Servers
from faults.proxy import Proxy

LONG = "faults_long"


@pytest.fixture(scope="package")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = Servers(tmp_path_factory.mktemp("faults"))
    try:
        made.start("kafka", "s3", "adb", "phones")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers, started by the first test that asks for them."""
    made = Cluster(tmp_path_factory.mktemp("cluster"), cache())
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture
def s3(servers: Servers) -> Iterator[str]:
    """The name of a store that can be killed."""
    if not servers.store_can_be_killed():
        pytest.skip("the store here is a directory or in Docker, which a signal does not take away")
    yield "s3"
    servers.start("s3")


@pytest.fixture
def new_run(servers: Servers, tmp_path: Path) -> Iterator[Callable[..., LiveRun]]:
    """Makes runs of their own on whole servers; settings by section."""
    servers.start("kafka", "s3", "adb", "phones")
    made: list[LiveRun] = []

    def make(tree: Json | None = None) -> LiveRun:
        made.append(LiveRun(servers, tmp_path / f"run-{len(made)}", tree))
        return made[-1]

    yield make
    for run in made:
        run.close()


@pytest.fixture
def run(new_run: Callable[..., LiveRun]) -> LiveRun:
    return new_run()


@pytest.fixture
def proxy(servers: Servers) -> Iterator[Proxy]:
    """What a test cuts between a role and the broker."""
    servers.start("kafka")
    made = Proxy(servers.broker_port)
    yield made
    made.close()


@pytest.fixture
def rule() -> random.Random:
    """Chance, replayable: the seed is printed, and SEED sets it."""
    seed = int(os.environ.get("SEED", "") or random.SystemRandom().randrange(1_000_000))
    print(f"seed {seed}: `make faults SEED={seed}` draws the same")
    return random.Random(seed)
