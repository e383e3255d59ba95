"""One model and one server for all tests of this room; each test has a folder and adapters of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import ModelServer, model_server
from policy.vlm.models import qwen25

from rollout.served.world import Learned, Process, learned, processes


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("base")
    qwen25(made)
    return made


@pytest.fixture(scope="session")
def learner(base: Path) -> Learned:
    return learned(base, base)


@pytest.fixture(scope="session")
def running(base: Path) -> Iterator[ModelServer]:
    with model_server(base) as server:
        yield server


@pytest.fixture
def server(running: ModelServer) -> Iterator[ModelServer]:
    """Without adapters, and in order."""
    yield running
    running.reset()


@pytest.fixture
def start(base: Path, tmp_path: Path, server: ModelServer) -> Process:
    """Starts processes that share the server and a folder."""
    return processes(base, tmp_path / "adapters", server)
