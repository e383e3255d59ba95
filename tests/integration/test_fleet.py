"""The measurement of a whole fleet, with a few phones: every part is there, and each trajectory is counted once."""

from __future__ import annotations

import importlib
import uuid
from argparse import ArgumentParser
from pathlib import Path

import psutil
import pytest
from distrl.broker.group import GroupOffsets
from distrl.config import load, with_run

from .conftest import Servers

pytestmark = pytest.mark.integration

BENCH = Path(__file__).parents[2] / "bench"
PHONES, WORKERS, TRAJECTORIES = 12, 3, 64


def test_a_small_fleet_is_measured_from_end_to_end(
    servers: Servers, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    fleet, parts = importlib.import_module("fleet"), importlib.import_module("fleet_parts")
    world_of = importlib.import_module("fleet_world").World
    monkeypatch.setattr(parts, "REST_S", 1.0)
    parser = ArgumentParser()
    fleet.arguments(parser)
    given = parser.parse_args(["--episode-s", "4", "--speeds", "1", "--seconds", "4"])
    child = servers.get("broker").child
    assert child is not None
    config = load(
        sets=[
            f"run=fleet-{uuid.uuid4().hex[:8]}",
            f"kafka.bootstrap={broker}",
            f"store.url=file://{tmp_path}/objects",
            f"stack.directory={servers.directory}",
            *fleet.SETTINGS,
        ],
        environ={},
    )
    world = world_of(config, tmp_path, psutil.Process(child.pid), PHONES, WORKERS, fleet.STEPS, TRAJECTORIES, 2)
    found = fleet.measured(world, given)

    assert found["parts"].keys() >= {"producers", "consumers", "feeder", "learner, 16 an update"}
    assert all(part["cpu_s"] > 0 and part["seconds"] > 0 for part in found["parts"].values())
    assert found["parts"]["learner, 16 an update"]["trajectories"] == TRAJECTORIES
    assert found["joins"]["members"] == WORKERS
    assert 0 < found["broadcast"]["p50_s"] <= found["broadcast"]["most_s"]
    (turn,) = found["together"]
    assert turn["offered"] == PHONES / 4
    assert turn["finished"] > 0
    assert found["bytes of a trajectory"] > 1_000
    with GroupOffsets(with_run(config, f"{config.run}-feeder")) as group:
        committed = sum(group.committed(range(config.kafka.task_partitions)).values())
    assert committed >= world.outstanding + TRAJECTORIES, "each task was taken and committed"
