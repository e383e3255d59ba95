"""Losses of updates last: who comes when the heartbeats are gone finds those of every update, also after a kill."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.journal import journalled
from distrl.broker.reader import LogReader, decoded, retained
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.learner.figures import TOPIC
from distrl.runs.recorded import join
from distrl.store.checkpoints import delete_checkpoints
from distrl.store.objects import open_store
from distrl.telemetry.metrics import METRICS
from distrl.train.roles import write_settings
from distrl.types import Figures
from distrl.view import series as charts
from distrl.view.follow import RunFollower, index_path
from distrl.view.index import reading
from learned import learn, publish
from learner.world import learning, save_tiny_base

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

UPDATES = 6
"""One of them is the warm-up's."""
READY_S = 120.0


@pytest.fixture
def config(broker: str, tmp_path: Path) -> Config:
    """A run with the records of UPDATES updates."""
    save_tiny_base(tmp_path / "base")
    made = Config.model_validate(
        {
            "run": f"figures-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap": broker, "task_partitions": 2},
            "store": {"url": f"file://{tmp_path}/objects"},
            "stack": {"cache": str(tmp_path / "cache")},
            **learning(tmp_path / "base", warmup_updates=1),
        }
    )
    topic_admin.ensure(made)
    join(made, None, "learner", ())
    publish(made, range(6), "demonstrations")
    publish(made, range(1000, 1000 + 4 * (UPDATES - 1)), "trajectories")
    return made


def recorded(config: Config) -> list[Figures]:
    with LogReader(config, TOPIC) as reader:
        return [decoded(raw, Figures) for batch in reader.to_end() for raw in batch]


def forget_heartbeats(config: Config) -> None:
    """As the broker does after a day."""
    topic, client = topic_name(config.run, "heartbeats"), admin(config.kafka)
    ((first, end),) = retained(config, "heartbeats").values()
    assert end > first
    place = TopicPartition(topic, 0, end)
    client.delete_records([place])[place].result(READY_S)
    assert retained(config, "heartbeats") == {0: (end, end)}


def tracked(config: Config, folder: Path, out: str) -> list[dict[str, Any]]:
    """The learner's points of a `distrl track` that begins now."""
    write_settings(config, folder / "run.yaml")
    line = [sys.executable, "-m", "distrl.cli.main", "track", "-c", "run.yaml", "--out", out, "--to", "files"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    subprocess.run([*line, "--no-follow"], cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    (path,) = (folder / out).rglob("points.jsonl")
    lines = [json.loads(each) for each in path.read_text().splitlines()]
    return [each for each in lines if each["source"] == "learner"]


def charted(config: Config) -> dict[str, Sequence[float | None]]:
    """What the charts of a fresh index have of each update."""
    assert not index_path(config).exists()
    with closing(RunFollower(config)) as follower:
        assert follower.caught_up.wait(READY_S)
        assert follower.failure is None
    with reading(index_path(config)) as connection:
        updates = charts.series(connection, None, None)["updates"]
    assert updates["update"] == list(range(UPDATES))
    metrics: dict[str, Sequence[float | None]] = updates["metrics"]
    return metrics


def test_a_late_tracker_and_a_fresh_index_have_the_losses_of_every_update(config: Config, tmp_path: Path) -> None:
    learn(config, UPDATES - 2)
    delete_checkpoints(open_store(config.store), config.run, range(UPDATES))  # so that all updates are redone
    learn(config, UPDATES)
    early = tracked(config, tmp_path, "early")
    forget_heartbeats(config)

    found = {each.u: each for each in reversed(recorded(config))}
    assert Counter(each.u for each in recorded(config)) == {u: 2 if u < UPDATES - 2 else 1 for u in range(UPDATES)}
    lines = {line.u: line.journalled_at for line in journalled(config)}
    assert {u: each.journalled_at for u, each in found.items()} == lines
    assert all(set(each.metrics) <= METRICS.keys() for each in found.values())

    late = tracked(config, tmp_path, "late")
    assert late == early
    assert [each["step"] for each in late] == list(range(UPDATES))
    for u, name in [(0, "clone_loss"), *((u, "value_loss") for u in range(1, UPDATES))]:
        assert late[u][f"learner/{name}"] == found[u].metrics[name]
        assert late[u]["at"] == found[u].at

    charts_have = charted(config)
    assert charts_have["clone_loss"][0] == found[0].metrics["clone_loss"]
    assert list(charts_have["value_loss"][1:]) == [found[u].metrics["value_loss"] for u in range(1, UPDATES)]


def test_what_a_redone_update_learned_is_recorded_alike(config: Config) -> None:
    learn(config, UPDATES)
    delete_checkpoints(open_store(config.store), config.run, range(UPDATES + 1))
    publish(config, range(2000, 2004), "trajectories")
    learn(config, UPDATES + 1)
    of_the_fold = ("clone_loss", "value_loss", "trajectory_value_loss", "entropy", "ratio", "buffer", "window_lag_mean")
    by_update: dict[int, list[dict[str, float]]] = {}
    for each in recorded(config):
        figures = {name: each.metrics[name] for name in of_the_fold if name in each.metrics}
        by_update.setdefault(each.u, []).append(figures)
    for u in range(UPDATES):
        first, again = by_update[u]
        assert first == again
        assert any(name.endswith("_loss") for name in first)


def test_without_the_topic_the_learner_goes_on_and_heartbeats_are_read(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As a run has it that earlier software has begun; `distrl topics ensure` makes it, and what follows lasts."""
    topic, client = topic_name(config.run, TOPIC), admin(config.kafka)
    client.delete_topics([topic], operation_timeout=30)[topic].result(60)
    with caplog.at_level(logging.WARNING, "distrl.learner.beside"):
        learn(config, UPDATES - 2)
    (said,) = [each.getMessage() for each in caplog.records if each.name == "distrl.learner.beside"]
    assert "not recorded until this learner is started again" in said
    assert topic in said
    points = tracked(config, tmp_path, "without")
    assert [each["step"] for each in points] == list(range(UPDATES - 2))

    topic_admin.ensure(config)
    learn(config, UPDATES)
    assert [each.u for each in recorded(config)] == [UPDATES - 2, UPDATES - 1]
    points = tracked(config, tmp_path, "with")
    assert [each["step"] for each in points] == list(range(UPDATES)), "the ones stand in for the others"
    losses = charted(config)["value_loss"]
    assert losses[1:] == [each["learner/value_loss"] for each in points[1:]]
