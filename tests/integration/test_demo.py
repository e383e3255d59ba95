"""The demo's own parts on a real broker, without a training: the feed of its view, what it says, how it fails."""

from __future__ import annotations

import io
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.topics import topic_name
from distrl.cli.main import app
from distrl.config import Config, load
from distrl.demo import run as demo
from distrl.demo.progress import DemoProgress
from distrl.errors import BrokerError, ConfigError, StackError
from distrl.runs.recorded import join
from distrl.stack.local import LocalStack
from distrl.stack.processes import find_all, stop_all
from distrl.telemetry.feed import RunFeed, status_of
from distrl.train.roles import Roles, running
from distrl.train.run import train
from distrl.train.watch import watch
from distrl.types import Evaluation, Heartbeat, Trajectory
from rich.console import Console
from typer.testing import CliRunner

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
VERSION = factories.version(3, update=9)


@pytest.fixture
def config(broker: str, tmp_path: Path) -> Config:
    """A run with its topics, whose roles would find no store."""
    sets = [
        f"run=demo-{uuid.uuid4().hex[:12]}",
        f"kafka.bootstrap={broker}",
        "kafka.task_partitions=2",
        "phones.count=1",
        "phones.evaluation_count=0",
        "devices.addresses=[127.0.0.1:1]",
        f"stack.directory={tmp_path / 'stack'}",
        "store.url=s3://127.0.0.1:1/distrl",
        "store.access_key=a",
        "store.secret_key=b",
        "store.timeout_s=1",
    ]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "logs"
    stop_all(find_all(tmp_path / "logs"), 10.0)


def trajectory(number: int, version: int = 1) -> Trajectory:
    now = int(time.time() * 1000)
    steps = (factories.step(version=version, at=500),)
    return factories.trajectory(f"task-{number}", steps, started_at=now, finished_at=now)


def test_the_feed_starts_with_all_there_is_and_follows(config: Config) -> None:
    with Journal(config) as journal:
        journal.publish_version(VERSION)
    with RecordProducer(config, "a-test") as producer:

        def publish(topic: str, key: str, record: Trajectory | Heartbeat | Evaluation) -> None:
            producer.publish(topic, key, record).result(PATIENCE_S)

        publish("trajectories", "task-0", trajectory(0))
        garbage = topic_name(config.run, "trajectories")
        producer.publish_bytes(garbage, b"bad", b"no record").result(PATIENCE_S)
        publish("heartbeats", "w", Heartbeat("w", "worker", int(time.time() * 1000), 3, "c" * 64, {"episodes": 1.0}))
        publish("evaluations", "3", Evaluation(3, "c" * 64, "3-x", trajectory(9)))
        with RunFeed(config) as feed:
            first = feed.status()
            assert (first.trajectories, first.lag_max, first.success) == (1, 2, 1.0)
            assert first.newest == VERSION
            assert [beat.process for beat in first.processes] == ["w"]
            assert [row[0] for row in first.evaluations] == [3]
            publish("trajectories", "task-1", trajectory(1, version=3))
            deadline = time.monotonic() + PATIENCE_S
            while feed.status().trajectories < 2:
                assert time.monotonic() < deadline
                feed.wait(0.2)
    assert status_of(config).trajectories == 2


def test_waiting_takes_its_time_and_ends_at_once_when_stopped(config: Config) -> None:
    with RunFeed(config) as feed:
        began = time.monotonic()
        feed.wait(0.5)
        assert time.monotonic() - began >= 0.5
        told = threading.Event()
        told.set()
        began = time.monotonic()
        feed.wait(PATIENCE_S, told)
        assert time.monotonic() - began < PATIENCE_S / 2


def test_a_run_without_topics_has_no_feed(config: Config) -> None:
    with pytest.raises(BrokerError, match="distrl topics ensure"):
        status_of(config.model_copy(update={"run": "never-made"}))


def test_where_there_is_no_terminal_a_line_comes_now_and_then(config: Config, folder: Path) -> None:
    with Journal(config) as journal:
        journal.publish_version(VERSION)
    with RecordProducer(config, "a-test") as producer:
        producer.publish("trajectories", "task-0", trajectory(0)).result(PATIENCE_S)
    out = io.StringIO()
    looks = iter([0.2, 0.2, 0.2, 0.2, 0.0])
    with running(config, folder) as roles:
        watch(config, roles, Console(file=out, width=200), lambda: next(looks))
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert all("1 trajectories, 1 a minute, success 100%, version 3" in line for line in lines)
    assert "\x1b" not in out.getvalue()


def test_the_view_begins_again_where_the_broker_has_lost_what_it_had_read(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every role survives that, so the run must not end by its view."""
    monkeypatch.setattr("distrl.train.watch.REOPEN_S", 0.2)
    out, done, deadline = io.StringIO(), set[str](), time.monotonic() + 4 * PATIENCE_S
    client, name = admin(config.kafka), topic_name(config.run, "heartbeats")
    with RecordProducer(config, "a-test") as producer:

        def learned(number: int) -> None:
            producer.publish("trajectories", f"task-{number}", trajectory(number)).result(PATIENCE_S)

        def lose() -> None:
            """Called between two looks at the log, after the first."""
            if "lost" not in done:
                client.delete_topics([name])[name].result(PATIENCE_S)
                while name in client.list_topics(timeout=PATIENCE_S).topics:
                    assert time.monotonic() < deadline
                topic_admin.ensure(config)
                done.add("lost")
            elif "more" not in done and "the view shows the last status" in caplog.text:
                learned(1)
                done.add("more")

        def left() -> float:
            assert time.monotonic() < deadline
            if out.getvalue():
                lose()
            return 0.0 if "2 trajectories" in out.getvalue() else 1.0

        learned(0)
        for number in range(5):
            producer.publish("heartbeats", "w", Heartbeat("w", "worker", number, 0, "c" * 64, {})).result(PATIENCE_S)
        with Journal(config) as journal:
            journal.publish_version(VERSION)
        with running(config, folder) as roles:
            watch(config, roles, Console(file=out, width=200), left)
    lines = out.getvalue().splitlines()
    assert all("1 trajectories" in line for line in lines[:-1]), "the last status, while there is no newer one"
    assert "2 trajectories" in lines[-1]


def interrupted_at_start(monkeypatch: pytest.MonkeyPatch, command: str = "train") -> list[Config]:
    """Interrupts a training, which starts no server, before its roles; returns the list that their settings come to."""
    seen: list[Config] = []

    def interrupted(roles: Roles, placement: object) -> None:
        seen.append(load(roles._file, environ={}))
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStack, "up", lambda stack, **_: stack._config)
    monkeypatch.setattr(f"distrl.{command}.run.start_all", interrupted)
    return seen


def addresses(config: Config) -> list[str]:
    """The settings without which nobody finds the run of `config`, its store and its phone."""
    return [
        f"run={config.run}",
        f"kafka.bootstrap={config.kafka.bootstrap}",
        f"stack.directory={config.stack.directory}",
        f"store.url={config.store.url}",
        "devices.addresses=[127.0.0.1:1]",
    ]


@pytest.mark.parametrize(("workers", "is_printed"), [(None, False), (1, False), (4, True)])
def test_that_fewer_workers_start_than_were_asked_for_is_printed(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None, is_printed: bool
) -> None:
    interrupted_at_start(monkeypatch)
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        train(config, lambda base: config, folder.parent / "out", Console(file=out, width=200), workers, None)
    assert ("workers start: " in out.getvalue()) == is_printed


@pytest.mark.parametrize("has_version", [False, True])
def test_that_the_learner_waits_for_demonstrations_is_printed_where_it_does(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch, has_version: bool
) -> None:
    """On phones of one's own; a run that has a version has had them."""
    interrupted_at_start(monkeypatch)
    if has_version:
        with Journal(config) as journal:
            journal.publish_version(VERSION)
    out = io.StringIO()
    with pytest.raises(KeyboardInterrupt):
        train(config, lambda base: config, folder.parent / "out", Console(file=out, width=200), 1, None)
    assert ("the learner waits for" in out.getvalue()) != has_version


def test_roles_go_by_the_settings_that_the_runs_log_has_where_no_others_are_given(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [*addresses(config), "worker.temperature=0.5"]
    other = config.feeder.model_copy(update={"suite": "general", "max_lag": 9})
    phones = config.phones.model_copy(update={"popup_probability": 0.9})
    join(config.model_copy(update={"feeder": other, "phones": phones}), None, "feeder", ())
    seen = interrupted_at_start(monkeypatch)

    def given(base: Mapping[str, Any]) -> Config:
        return load(sets=own, environ={}, base=base)

    with pytest.raises(KeyboardInterrupt):
        train(given({}), given, folder.parent / "out", Console(file=io.StringIO()), 1, None)
    (found,) = seen
    assert (found.feeder.suite, found.feeder.max_lag, found.worker.temperature) == ("general", 9, 0.5)
    assert found.phones.popup_probability == 0.9, "those that the stack is asked for"


@pytest.mark.parametrize("command", ["train", "demo"])
@pytest.mark.parametrize("given", ["algorithm.clip=0.3", "learner.rebuild_window=400"])
def test_settings_are_judged_over_those_that_the_runs_log_has(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, given: str
) -> None:
    """They are wrong over the defaults: another algorithm has no such setting, and its replay holds more."""
    algorithm = load(sets=["algorithm.type=grpo", "algorithm.replay.capacity=300"], environ={}).algorithm
    join(config.model_copy(update={"algorithm": algorithm}), None, "feeder", ())
    own = [*addresses(config), given]
    seen = interrupted_at_start(monkeypatch, command)
    monkeypatch.setattr(f"distrl.cli.{command}.ended_as_interrupted", lambda: None)
    line = [command, "--out", str(tmp_path / "out"), *(word for each in own for word in ("--set", each))]
    ended = CliRunner().invoke(app, line)
    assert ended.exit_code == 130, ended.exception
    (found,) = seen
    name, _, value = given.partition("=")
    section, _, name = name.partition(".")
    assert (found.algorithm.type, found.algorithm.replay.capacity) == ("grpo", 300)
    assert getattr(getattr(found, section), name) == float(value)


def test_on_a_terminal_the_view_is_drawn_for_its_size(config: Config, folder: Path) -> None:
    out = io.StringIO()
    looks = iter([5.0, 5.0, 0.0])
    console = Console(file=out, force_terminal=True, width=60, height=16)
    with running(config, folder) as roles:
        watch(config, roles, console, lambda: next(looks), "Ctrl-C stops, the same command continues")
    assert f"DistRL run {config.run}" in out.getvalue()
    assert "5 s left; Ctrl-C stops, the same command continues" in out.getvalue()


def test_a_run_whose_time_is_spent_starts_nobody_and_says_how_to_go_on(config: Config, folder: Path) -> None:
    out = io.StringIO()
    file = folder.parent / "progress.json"
    with running(config, folder) as roles:
        demo._train(config, roles, 1.0, DemoProgress(5.0, 60.0), file, Console(file=out, width=200))
        assert find_all(folder) == []
    assert "trained for 60 s: raise --minutes (MINUTES= of `make demo`) to train more" in out.getvalue()
    assert not file.exists()


def test_a_demo_that_was_too_short_for_a_version_asks_for_more_minutes_and_starts_no_evaluation(
    config: Config, folder: Path
) -> None:
    with pytest.raises(ConfigError, match="MINUTES: the time ended"), running(config, folder) as roles:
        demo._evaluate(config, roles, Console(file=io.StringIO()))
    assert not (folder / "evaluation.log").exists()


def test_a_role_that_dies_ends_the_demo_with_its_last_words_and_the_time_is_kept(config: Config, folder: Path) -> None:
    file = folder.parent / "progress.json"
    with pytest.raises(StackError) as told, running(config, folder, tries=1) as roles:
        demo._train(config, roles, 5.0, DemoProgress(7.0, 100.0), file, Console(file=io.StringIO()))
    assert told.value.where in ("learner", "demonstrate")
    assert "stopped with exit code 1; the end of " in told.value.what
    assert "hint: " in told.value.what
    assert f"{folder}/" in told.value.hint
    kept = DemoProgress.load(file)
    assert kept.setup_seconds == 7.0
    assert 100.0 < kept.train_seconds < 400.0
    assert find_all(folder) == [], "nobody is left behind"


def test_ctrl_c_in_training_keeps_the_time_and_leaves_nobody(config: Config, folder: Path) -> None:
    file = folder.parent / "progress.json"

    class Interrupting(Console):
        def print(self, *objects: object, **options: object) -> None:
            raise KeyboardInterrupt

    patient = config.model_copy(update={"learner": config.learner.model_copy(update={"demonstrations": 0})})
    with pytest.raises(KeyboardInterrupt), running(patient, folder) as roles:
        demo._train(patient, roles, 0.01, DemoProgress(7.0, 0.0), file, Interrupting(file=io.StringIO()))
    assert DemoProgress.load(file).train_seconds > 0.0
    assert find_all(folder) == []
