"""`distrl track` on a run that really learned: the past, what comes, kills, and a tracker that fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import factories
import pytest
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.journal import journalled
from distrl.broker.producer import RecordProducer
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.runs.recorded import join, recorded
from distrl.trackers.follow import TrackerError, track, tracked_run
from distrl.trackers.protocol import Point, TrackedRun
from distrl.trackers.to_files import Files
from distrl.train.roles import write_settings
from distrl.types import Evaluation, Outcome, Split
from learned import learn, publish
from learner.world import learning, save_tiny_base
from trackers import trackio_apart

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PATIENCE_S = 120.0
FIRST, MORE = 5, 7
"""Updates that are folded before the first look, and in the end. Three of them are the warm-up's."""


@pytest.fixture
def run(broker: str, s3: settings.StoreSettings, tmp_path: Path) -> Config:
    save_tiny_base(tmp_path / "base")
    config = Config.model_validate(
        {
            "run": f"tracked-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap": broker, "task_partitions": 1},
            "store": s3.model_dump() | {"secret_key": s3.secret_key.get_secret_value() if s3.secret_key else None},
            "evaluate": {"validation_episodes": 2},
            **learning(tmp_path / "base"),
        }
    )
    topic_admin.ensure(config)
    join(config, None, "learner", ())
    publish(config, range(6), "demonstrations")
    publish(config, range(1000, 1004), "trajectories")
    with RecordProducer(config, "test") as producer:
        producer.publish_bytes(topic_name(config.run, "trajectories"), b"x", b"no record").result(PATIENCE_S)
    publish(config, range(1004, 1000 + 4 * (FIRST - 3)), "trajectories")
    evaluate(config, 0, Outcome.SUCCESS, Outcome.FAILURE)
    learn(config, FIRST)
    return config


def evaluate(config: Config, version: int, *outcomes: Outcome) -> None:
    with RecordProducer(config, "test") as producer:
        for number, outcome in enumerate(outcomes):
            task = factories.task(f"e-{number}", split=Split.VALIDATION)
            played = factories.trajectory(task, outcome=outcome)
            record = Evaluation(version, "a" * 64, f"{version}-{number}", played)
            producer.publish("evaluations", str(version), record).result(PATIENCE_S)


def lines(folder: Path) -> list[dict[str, Any]]:
    path = folder / "points.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def steps(folder: Path, source: str) -> list[int]:
    return [line["step"] for line in lines(folder) if line["source"] == source]


def begun(config: Config) -> TrackedRun:
    found = tracked_run(config, threading.Event(), follow=False)
    assert found is not None
    return found


def once(config: Config, folder: Path, tracker: type[Files] = Files) -> int:
    return track(config, begun(config), tracker, folder, threading.Event(), follow=False)


def test_the_past_is_filled_in_and_a_later_start_adds_what_came(run: Config, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert once(run, out) == 2 * FIRST + 1
    assert steps(out, "journal") == steps(out, "learner") == list(range(FIRST))
    assert steps(out, "evaluation/home/validation") == [0]
    found = {(line["source"], line["step"]): line for line in lines(out)}
    journal = journalled(run)
    assert [found["journal", u]["at"] for u in range(FIRST)] == [line.journalled_at for line in journal]
    assert found["journal", FIRST - 1]["collection/trajectories"] == 8.0
    assert found["learner", 0]["learner/clone_loss"] > 0
    assert found["learner", FIRST - 1]["learner/value_loss"] > 0
    assert found["evaluation/home/validation", 0]["evaluation/home/validation/success"] == 0.5
    assert (in_log := recorded(run)) is not None
    assert json.loads((out / "settings.json").read_text())["settings"] == in_log.values

    assert once(run, out) == 0
    publish(run, range(2000, 2000 + 4 * (MORE - FIRST)), "trajectories")
    evaluate(run, 1, Outcome.SUCCESS, Outcome.SUCCESS)
    learn(run, MORE)
    assert once(run, out) == 2 * (MORE - FIRST) + 1
    late = tmp_path / "late"
    assert once(run, late) == 2 * MORE + 2
    key = lambda line: (line["source"], line["step"])  # noqa: E731
    assert sorted(lines(late), key=key) == sorted(lines(out), key=key), "whenever it is asked, the figures are the same"


def test_a_follower_that_is_killed_and_started_again_repeats_nothing(run: Config, tmp_path: Path) -> None:
    write_settings(run, tmp_path / "run.yaml")
    line = [sys.executable, "-m", "distrl.cli.main", "track", "-c", "run.yaml", "--out", "out"]
    folder = tmp_path / "out" / begun(run).id / "files"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}

    def following(until: int) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(line, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE_S
        while len(lines(folder)) < until:
            assert child.poll() is None, "it ended by itself"
            assert time.monotonic() < deadline, f"only {len(lines(folder))} points came"
            time.sleep(0.1)
        return child

    child = following(2 * FIRST + 1)
    try:
        with pytest.raises(ConfigError, match="another `distrl track` writes there"):
            once(run, folder)
        publish(run, range(2000, 2000 + 4 * (MORE - FIRST)), "trajectories")
        learn(run, MORE)  # nobody waits for the follower, and it follows
        child.kill()
        child.wait()
        publish(run, range(3000, 3004), "trajectories")
        learn(run, MORE + 1)
        child = following(2 * (MORE + 1) + 1)  # the last update is nobody else's, so it is there to be asked to end
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0
    finally:
        child.kill()
        child.wait()
    assert Counter(steps(folder, "journal")) == Counter(steps(folder, "learner")) == Counter(range(MORE + 1))


def test_a_late_start_fills_trackio_in_and_a_later_one_adds_what_came(run: Config, tmp_path: Path) -> None:
    write_settings(run, tmp_path / "run.yaml")
    command = [sys.executable, "-m", "distrl.cli.main", "track", "-c", "run.yaml", "--out", "out", "--no-follow"]
    folder = tmp_path / "out" / begun(run).id / "trackio"

    def tracked() -> list[dict[str, Any]]:
        line = [*command, "--to", "trackio"]
        subprocess.run(line, cwd=tmp_path, env=trackio_apart.environment(), stdout=subprocess.DEVNULL, check=True)
        ((name, _, rows),), _ = trackio_apart.logs(folder, "distrl")
        assert name == run.run
        return rows

    assert len(tracked()) == 2 * FIRST + 1
    publish(run, range(2000, 2000 + 4 * (MORE - FIRST)), "trajectories")
    learn(run, MORE)
    rows = tracked()
    once(run, tmp_path / "files")
    figures = [(line["step"], name, line[name]) for line in lines(tmp_path / "files") for name in line if "/" in name]
    assert sorted((row["step"], name, row[name]) for row in rows for name in row if "/" in name) == sorted(figures)


class Failing(Files):
    """A tracker whose service goes away."""

    left = 0
    """Batches that it takes before that."""

    def log(self, points: Sequence[Point]) -> None:
        if Failing.left == 0:
            raise ConnectionError("the service is away")
        Failing.left -= 1
        super().log(points)

    def finish(self) -> None:
        super().finish()
        raise ConnectionError("still away")


def test_a_tracker_that_fails_is_explained_and_the_next_start_goes_on_behind_what_arrived(
    run: Config, tmp_path: Path
) -> None:
    Failing.left = 1
    with pytest.raises(TrackerError, match="ConnectionError: the service is away\n  hint: start the same command"):
        once(run, tmp_path / "out", Failing)
    arrived = len(lines(tmp_path / "out"))
    assert 0 < arrived < 2 * FIRST + 1
    assert once(run, tmp_path / "out") == 2 * FIRST + 1 - arrived
    assert Counter(steps(tmp_path / "out", "journal")) == Counter(range(FIRST))
