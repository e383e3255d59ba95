"""Recorded episodes from their files to a version that was warmed up on them, by the commands that a person types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from distrl.broker import topic_admin
from distrl.broker.reader import LogReader
from distrl.broker.topics import TOPICS
from distrl.config import Config, load
from distrl.train.roles import write_settings
from learned import learn
from learner.world import learning
from recording_files import aitw, dual_point, example, other, write

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

UPDATES, EPISODES = 30, 6
LIMIT_S = 400.0


def records(config: Config) -> dict[str, int]:
    """How many records each topic has."""
    found = {}
    for name in TOPICS:
        with LogReader(config, name) as reader:
            found[name] = sum(len(batch) for batch in reader.to_end())
    return found


def objects(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_episodes_are_published_learned_from_and_matched(broker: str, tmp_path: Path) -> None:
    sections = {name: each for name, each in learning(tmp_path).items() if name != "policy"}
    tree = {
        "run": f"episodes-{uuid.uuid4().hex[:8]}",
        "kafka": {"bootstrap": broker},
        "store": {"url": f"file://{tmp_path}/objects"},
        **sections,
    }
    sets = [f"warmup.updates={UPDATES}", f"warmup.demonstrations={EPISODES}"]
    config = load(sets=[*sets, "warmup.minibatches=4", "warmup.lr=0.005"], environ={}, base=tree)
    topic_admin.ensure(config)
    write_settings(config, tmp_path / "run.yaml")
    (tmp_path / "data").mkdir()
    steps = [dual_point((0.8, 0.5), (0.2, 0.5)), other(5)]
    parts = [part for number in range(EPISODES) for part in aitw(str(number), steps)]
    write(tmp_path / "data" / "general-00000-of-00001", map(example, [*parts, *aitw("9", [*steps, other(11)])]))

    def distrl(*arguments: str) -> subprocess.CompletedProcess[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
        done = subprocess.run(
            [sys.executable, "-m", "distrl.cli.main", *arguments, "--config", "run.yaml", "--episodes", "data"],
            cwd=tmp_path,
            env=environ | {"COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return done

    early = distrl("evaluate")
    assert early.returncode == 1
    assert "published no version yet" in early.stderr
    for expected in (f"{EPISODES} demonstrations published, 0 of", f"0 demonstrations published, {EPISODES} of"):
        published = distrl("demonstrate")
        assert (published.returncode, expected in published.stdout) == (0, True), published
        assert "skipped: 1 episodes: `STATUS_TASK_IMPOSSIBLE` has no counterpart" in published.stdout
        assert "the learner waits" not in published.stdout
    (tmp_path / "test.txt").write_text("0\n8\n")
    published = distrl("demonstrate", "--without", "test.txt")
    assert f"published, {EPISODES - 1} of" in published.stdout
    assert "left out: 0 episodes; test.txt names 2" in published.stdout
    assert "1 of those to be left out are demonstrations of this run already" in published.stdout
    (tmp_path / "test.txt").write_text('{"test": [0]}')
    published = distrl("demonstrate", "--without", "test.txt")
    assert (published.returncode, "--without: test.txt, line 1: " in published.stderr) == (1, True)
    learn(config, UPDATES)

    before = records(config), objects(tmp_path / "objects")
    matched = distrl("evaluate", "--json")
    assert matched.returncode == 0, matched.stderr
    [version] = json.loads(matched.stdout)["versions"]
    assert (version["version"], version["dataset"], version["episodes"], version["steps"]) == (0, "aitw", 7, 15)
    assert version["by_type"]["STATUS_TASK_IMPOSSIBLE"] == {"steps": 1, "matched": 0, "without_counterpart": 1}
    assert version["match_of_possible"] == 1.0
    assert version["complete_match"] == pytest.approx(6 / 7)
    shown = distrl("evaluate", "--versions", "first", "--format", "aitw")
    assert shown.returncode == 0, shown.stderr
    assert "version 0 on aitw" in shown.stdout
    assert "93.3%" in shown.stdout
    assert (records(config), objects(tmp_path / "objects")) == before, "it reads only"
    wrong = distrl("evaluate", "--format", "android-control")
    assert wrong.returncode == 1
    assert "nothing can be read as android-control: 15 episodes: cannot be read" in wrong.stderr
