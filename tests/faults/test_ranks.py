"""A learner of several processes on the real log: other numbers of them, and one that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from distrl.stack import ports

from faults.live import WARMUP, LiveRun

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PER_UPDATE = 3
BIN = Path(sys.executable).parent
END_S = 120.0
"""Within which the other rank must have ended: its own bound is ten minutes, for a machine that is gone."""


def test_a_run_goes_on_with_other_ranks_and_a_killed_one_loses_nothing(new_run: Callable[..., LiveRun]) -> None:
    run = new_run({"learner": {"shards": 2, "device": "cpu"}})
    two = ["learner.ranks=2"]
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 1)
    run.stop("learner")
    learner = run.learner(sets=two)
    run.record(trajectories=6 * PER_UPDATE)
    run.until("two updates of two ranks", lambda: len(run.updates()) >= WARMUP + 3)
    found = re.search(r"rank 1 of 2 is process (\d+)", learner.said())
    assert found is not None, learner.said()
    os.kill(int(found[1]), signal.SIGKILL)
    assert learner.wait(END_S) == 1
    assert "rank 0 of 2: another rank has ended" in learner.said(), learner.said()
    assert "rank 1 of 2 has ended: killed by signal 9" in learner.said(), learner.said()
    assert "Traceback" not in learner.said(), learner.said()
    run.learner(sets=two)
    run.until_learned(WARMUP + 7)
    run.stop("learner")
    run.record(trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 8)
    assert run.end_learning().updates == WARMUP + 8, "and what one process makes of the whole log is the same"


def test_torchrun_starts_its_ranks_again_after_one_was_killed(new_run: Callable[..., LiveRun], tmp_path: Path) -> None:
    run = new_run({"learner": {"shards": 2, "device": "cpu"}})
    run.record(demonstrations=6, trajectories=2 * PER_UPDATE)
    at = [
        "--nproc-per-node=2",
        "--max-restarts=1",
        "--master-addr=127.0.0.1",
        f"--master-port={ports.draw('--master-port')}",
    ]
    learner = [str(BIN / "distrl"), "learner", "--config", str(run.settings)]
    log = tmp_path / "torchrun.log"
    with log.open("wb") as file:
        torchrun = subprocess.Popen([str(BIN / "torchrun"), *at, "--no-python", *learner], stdout=file, stderr=file)
    try:
        run.until("two updates of A-RIDE", lambda: len(run.updates()) >= WARMUP + 2 or torchrun.poll() is not None)
        first = psutil.Process(torchrun.pid).children()
        assert len(first) == 2, log.read_text()
        first[1].kill()
        run.record(trajectories=2 * PER_UPDATE)
        run.until("two more", lambda: len(run.updates()) >= WARMUP + 4 or torchrun.poll() is not None)
        again = psutil.Process(torchrun.pid).children()
        assert len(again) == 2, log.read_text()
        assert {each.pid for each in first}.isdisjoint(each.pid for each in again)
        torchrun.terminate()
        torchrun.wait(END_S)
        assert not [each for each in again if each.is_running()], "torchrun passes SIGTERM on and waits"
    finally:
        for each in psutil.Process(torchrun.pid).children(recursive=True) if torchrun.poll() is None else []:
            each.kill()
        torchrun.kill()
        torchrun.wait()
    run.record(trajectories=PER_UPDATE)
    run.learner()
    run.until_learned(WARMUP + 5)
    assert run.end_learning().updates == WARMUP + 5, "and what one process makes of the whole log is the same"
