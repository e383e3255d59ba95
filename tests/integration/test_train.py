"""`distrl train` as a person uses it: it starts its servers, what is killed comes back, Ctrl-C and again goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import waiting
import yaml
from babbling import save_babbling
from distrl.broker.versions import lineage
from distrl.config import Config, load
from distrl.errors import BrokerError
from distrl.stack import ports
from distrl.stack.local import LocalStack, connect
from distrl.stack.processes import find, find_all, stop_all

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

LIMIT_S = 600.0
RUN = "train-test"


@pytest.fixture
def file(tmp_path: Path, prepared: None) -> Iterator[Path]:
    """A settings file as a person writes it: no endpoint, a small model, small updates."""
    save_babbling(tmp_path / "base", 64, 128, (8, 8, 16))
    tree = {
        "run": RUN,
        "stack": {
            "directory": str(tmp_path / "stack"),
            "object_store": "directory",
            "kafka_heap_mb": 256,
            "kafka_port": ports.draw("the tests", count=2),  # at the default one, other tests would find this broker
        },
        "phones": {"count": 2, "evaluation_count": 1, "latency_median_ms": 5.0},
        "policy": {"base_model": str(tmp_path / "base")},
        "warmup": {"demonstrations": 8, "updates": 2, "minibatches": 2, "batch_size": 16},
        "algorithm": {"minibatches": 2, "batch_size": 16, "critic_warmup_updates": 1},
        "learner": {"trajectories_per_update": 4, "checkpoint_every": 3},
        "evaluate": {"validation_episodes": 2},
    }
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(tree))
    yield path
    stop_all(find_all(tmp_path / "out" / RUN / "logs"), 10.0)
    LocalStack(load(path, environ={})).down()


@contextmanager
def training(file: Path) -> Iterator[subprocess.Popen[str]]:
    """`distrl train`, stopped by Ctrl-C at the end of the block; it must end by that alone."""
    line = [sys.executable, "-m", "distrl.cli.main", "train", "-c", str(file), "--out", str(file.parent / "out")]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    with (
        (file.parent / "train.log").open("a") as log,
        subprocess.Popen(
            [*line, "--workers", "1"], cwd=file.parent, env=environ, stdout=log, stderr=log, text=True
        ) as child,
    ):
        try:
            yield child
            child.send_signal(signal.SIGINT)
            assert child.wait(LIMIT_S) == 130, said(file)
        finally:
            child.kill()


def said(file: Path) -> str:
    return (file.parent / "train.log").read_text()


def until(file: Path, child: subprocess.Popen[str], what: str, condition: Callable[[], bool]) -> None:
    def come() -> bool:
        assert child.poll() is None, said(file)
        return condition()

    waiting.until(come, lambda: f"{what}: {said(file)}", LIMIT_S, every_s=0.2)


def distrl(file: Path, *arguments: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    subprocess.run([sys.executable, "-m", "distrl.cli.main", *arguments], cwd=file.parent, env=environ, check=True)


def newest(file: Path) -> int:
    try:
        found = lineage(settings(file))
    except BrokerError:
        return -1  # the servers are starting, or the topics are not there yet
    return found[-1].version if found else -1


def settings(file: Path) -> Config:
    return connect(load(file, ["kafka.connect_timeout_s=2"], environ={}))


def test_a_killed_learner_comes_back_and_ctrl_c_and_again_goes_on(file: Path) -> None:
    logs = file.parent / "out" / RUN / "logs"
    with training(file) as child:
        until(file, child, "version 1", lambda: newest(file) >= 1)
        learner = find(logs, "learner")
        assert learner is not None
        distrl(file, "runs", "set", RUN, "feeder.max_lag=3", "-c", str(file))
        os.kill(learner.pid, signal.SIGKILL)
        before = newest(file)
        until(file, child, "a version after the kill", lambda: newest(file) > before)
        assert "learner ended with exit code -9 and is started again" in said(file)
        until(file, child, "the line that counts it", lambda: "started again: learner 1" in said(file))
        assert "goes by its own" not in (logs / "learner.log").read_text(), "it has taken what was set meanwhile"
    assert "stopped cleanly" in said(file)
    assert find_all(logs) == [], "no role is left"
    with training(file) as child:
        until(file, child, "the servers", lambda: newest(file) >= before)
        before = newest(file)
        until(file, child, "a version of the second sitting", lambda: newest(file) > before)
    assert "restored the checkpoint of" in (logs / "learner.log").read_text()


def test_servers_that_are_killed_come_back_where_they_were_and_the_run_goes_on(file: Path) -> None:
    """Broker, adb server and phones at once, as where memory runs out at night."""
    stack = file.parent / "stack"
    with training(file) as child:
        until(file, child, "version 1", lambda: newest(file) >= 1)
        at = settings(file)
        killed = find_all(stack)
        assert {each.name for each in killed} == {"kafka", "adb", "phones"}
        before = newest(file)
        for each in killed:
            each.kill()
        for each in killed:
            until(file, child, f"{each.name} again", lambda name=each.name: f"{name} serves again at" in said(file))
        until(file, child, "a version after the kills", lambda: newest(file) > before)
        now = settings(file)
        assert (now.kafka, now.adb, now.devices) == (at.kafka, at.adb, at.devices), "nobody has to look elsewhere"
        counted = re.compile(r"started again: adb \d, kafka 1, phones 1")  # a worker may start an adb server meanwhile
        until(file, child, "the line that counts them", lambda: bool(counted.search(said(file))))
    assert find_all(stack) == [], "it stops them at its end"
    assert find_all(file.parent / "out" / RUN / "logs") == []
