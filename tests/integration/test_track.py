"""`distrl track` on a run that really learned: the past, what comes, kills, and a tracker that fails."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any

import factories
import pytest
import waiting
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
AT_ONCE_S = 10.0
"""A process that a signal ends is gone in a moment, unless it waits for something."""
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


COMMAND = [sys.executable, "-m", "distrl.cli.main", "track", "-c", "run.yaml", "--out", "out"]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("DISTRL_", "MLFLOW_"))}


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


def test_a_run_that_begins_while_it_is_waited_for_is_followed_by_its_own_settings(broker: str, tmp_path: Path) -> None:
    """A version's point is there once its one task of the run is evaluated, and not after the 48 of the defaults."""
    given = {"run": f"tracked-{uuid.uuid4().hex[:8]}", "kafka": {"bootstrap": broker}}
    its = Config.model_validate({**given, "evaluate": {"validation_episodes": 1}})
    topic_admin.ensure(its)
    (tmp_path / "run.yaml").write_text(json.dumps(given))
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(COMMAND, cwd=tmp_path, env=environment(), stdout=file, stderr=file)
    try:
        waiting.until(lambda: "waiting until it has begun" in log.read_text(), log.read_text, PATIENCE_S)
        join(its, None, "learner", ())
        evaluate(its, 0, Outcome.SUCCESS)
        folder = tmp_path / "out"
        waiting.until(lambda: any(map(Path.read_text, folder.rglob("points.jsonl"))), log.read_text, PATIENCE_S)
    finally:
        process.kill()
        process.wait(PATIENCE_S)


def test_a_follower_that_is_killed_and_started_again_repeats_nothing(run: Config, tmp_path: Path) -> None:
    write_settings(run, tmp_path / "run.yaml")
    folder = tmp_path / "out" / begun(run).id / "files"

    def following(until: int) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(COMMAND, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL)

        def come() -> bool:
            assert child.poll() is None, "it ended by itself"
            return len(lines(folder)) >= until

        waiting.until(come, lambda: f"{until} points, and {len(lines(folder))} came", PATIENCE_S, every_s=0.1)
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
    folder = tmp_path / "out" / begun(run).id / "trackio"

    def tracked() -> list[dict[str, Any]]:
        line = [*COMMAND, "--no-follow", "--to", "trackio"]
        subprocess.run(line, cwd=tmp_path, env=trackio_apart.environment(), stdout=subprocess.DEVNULL, check=True)
        ((name, _, rows),), _ = trackio_apart.logs(folder, "distrl")
        assert name == run.run
        return rows

    assert len(tracked()) == 2 * FIRST + 1
    publish(run, range(2000, 2000 + 4 * (MORE - FIRST)), "trajectories")
    learn(run, MORE)
    rows = tracked()
    once(run, tmp_path / "files")
    found = sorted((row["step"], name, row[name]) for row in rows for name in row if "/" in name)
    assert found == figures(tmp_path / "files")


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


class Silent:
    """A server that takes connections and requests, and answers none."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._taken: list[socket.socket] = []
        self._thread = threading.Thread(target=self._take)
        self.asked: SimpleQueue[None] = SimpleQueue()
        """An entry for each connection that has begun a request."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def _take(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                self._taken.append(self._listening.accept()[0])
                self._taken[-1].recv(1)
                self.asked.put(None)

    def __enter__(self) -> Silent:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in (self._listening, *self._taken):
            with suppress(OSError):  # the other end is gone
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._thread.join(PATIENCE_S)


def asked_to_end(child: subprocess.Popen[str]) -> None:
    """Send SIGTERM and return once the process has it: from then on a second one ends it."""
    child.send_signal(signal.SIGTERM)
    deadline, bit = time.monotonic() + PATIENCE_S, 1 << (signal.SIGTERM - 1)
    while child.poll() is None:
        caught = re.search(r"^SigCgt:\t(\w+)$", Path(f"/proc/{child.pid}/status").read_text(), re.MULTILINE)
        if caught is None or not int(caught[1], 16) & bit:
            return
        assert time.monotonic() < deadline, "the signal is not taken"
        time.sleep(0.02)


def test_a_tracker_that_hangs_holds_nobody_up_ends_when_asked_and_a_later_start_fills_the_past_in(
    run: Config, tmp_path: Path
) -> None:
    write_settings(run, tmp_path / "run.yaml")
    folder, begin = tmp_path / "out" / begun(run).id / "mlflow", [*COMMAND, "--to", "mlflow"]
    short = {"TIMEOUT": "1", "MAX_RETRIES": "1", "BACKOFF_FACTOR": "0", "BACKOFF_JITTER": "0"}
    with Silent() as server:

        def hanging(timeouts: dict[str, str]) -> subprocess.Popen[str]:
            named = {f"MLFLOW_HTTP_REQUEST_{name}": value for name, value in timeouts.items()}
            places = environment() | named | {"MLFLOW_TRACKING_URI": server.address}
            child = subprocess.Popen(begin, cwd=tmp_path, env=places, stderr=subprocess.PIPE, text=True)
            server.asked.get(timeout=PATIENCE_S)
            return child

        with hanging({"TIMEOUT": "3600"}) as child:
            try:
                publish(run, range(2000, 2000 + 4 * (MORE - FIRST)), "trajectories")
                learn(run, MORE)  # training goes on, and so do the log's other readers
                assert once(run, tmp_path / "files") == 2 * MORE + 1
                asked_to_end(child)
                assert child.poll() is None, "it waits for the server, and can be asked again"
                child.send_signal(signal.SIGTERM)
                assert child.wait(AT_ONCE_S) == -signal.SIGTERM
            finally:
                child.kill()
        with hanging(short) as child:
            try:
                asked_to_end(child)
                _, errors = child.communicate(timeout=PATIENCE_S)
            finally:
                child.kill()
        assert (child.returncode, "the tracker: has failed: MlflowException" in errors) == (1, True), errors
    assert not (folder / "progress.json").exists(), "nothing has arrived"
    assert mlflow_figures(begin, tmp_path) == figures(tmp_path / "files")


def mlflow_figures(begin: Sequence[str], folder: Path) -> list[tuple[int, str, float]]:
    """What a start with a place that works gives to MLflow, up to the log's present end."""
    from mlflow import MlflowClient

    place = f"file://{folder / 'mlruns'}"
    places = environment() | {"MLFLOW_TRACKING_URI": place, "MLFLOW_ALLOW_FILE_STORE": "true"}
    subprocess.run([*begin, "--no-follow"], cwd=folder, env=places, stdout=subprocess.DEVNULL, check=True)
    with pytest.MonkeyPatch.context() as here:
        here.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        client = MlflowClient(place)
        experiment = client.get_experiment_by_name("distrl")
        assert experiment is not None
        (made,) = client.search_runs([experiment.experiment_id])
        found = [
            (name, each) for name in made.data.metrics for each in client.get_metric_history(made.info.run_id, name)
        ]
    return sorted((each.step, name, each.value) for name, each in found)


def figures(folder: Path) -> list[tuple[int, str, float]]:
    return sorted((line["step"], name, line[name]) for line in lines(folder) for name in line if "/" in name)
