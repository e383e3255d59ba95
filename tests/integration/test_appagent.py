"""The prompting agent beside a trained version, on real servers: explored, evaluated, and in one table with it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from appagent import model
from chat.server import Server, body, serving, thinks
from distrl import config as settings
from distrl.appagent import prompt
from distrl.appagent.notes import count, load
from distrl.cli.main import app
from distrl.config import Config
from distrl.errors import ChatError
from distrl.evaluate.gather import gather, records
from distrl.evaluate.prompted import AgentScore, evaluate_agent
from distrl.evaluate.report import write_report
from distrl.evaluate.run import evaluate_versions
from distrl.rollout.explore import exploration_tasks, explore
from distrl.store.objects import open_store
from distrl.train.roles import write_settings
from distrl.types import PROMPTED, Evaluation, Split
from served import phones_served, publish_untrained
from typer.testing import CliRunner

pytestmark = pytest.mark.integration

PHONES, TASKS = 2, 8


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(thinks(model.answer)) as started:
        yield started


@pytest.fixture
def run_config(
    broker: str,
    s3: settings.StoreSettings,
    adb_server: settings.AdbSettings,
    free_row: Callable[[int], int],
    server: Server,
    tmp_path: Path,
) -> Iterator[Config]:
    """A run on the session's servers, with quiet phones of its own and an untrained version to compare with."""
    port = free_row(PHONES)
    tree = {
        "run": f"appagent-{uuid.uuid4().hex[:8]}",
        "kafka": {"bootstrap": broker, "task_partitions": 2},
        "adb": adb_server.model_dump(),
        "phones": {
            "count": PHONES,
            "evaluation_count": 0,
            "base_port": port,
            "latency_median_ms": 1.0,
            "popup_probability": 0.0,
        },
        "devices": {"addresses": [f"127.0.0.1:{port + n}" for n in range(PHONES)], "settle_unchanged_s": 0.0},
        "appagent": {
            "endpoint": server.url,
            "model": "scripted",
            "requests_per_minute": 60_000,
            "notes": str(tmp_path / "notes.json"),
            "rounds": 6,
            "timeout_s": 60.0,
        },
    }
    config = Config.model_validate(tree).model_copy(update={"store": s3})
    publish_untrained(config)
    with phones_served(config.phones, tmp_path):
        yield config


def evaluated(config: Config) -> AgentScore:
    return evaluate_agent(config, Split.TEST, TASKS, threading.Event(), lambda done, total: None)


def test_it_is_explored_evaluated_and_reported_beside_a_version(
    run_config: Config, server: Server, tmp_path: Path
) -> None:
    write_settings(run_config, tmp_path / "run.yaml")
    explored = explore(run_config, exploration_tasks(run_config, 2, ()), threading.Event(), lambda *at: None)
    notes = count(load(tmp_path / "notes.json"))
    assert explored.notes == notes > 0
    assert (explored.tasks, explored.interrupted) == (2, 0)
    server.requests.clear()
    told = evaluated(run_config)
    assert (told.name, told.left) == (f"AppAgent, scripted, elements, {notes} notes", 0)
    assert 0 < told.score.successes < told.score.episodes == TASKS, "it can do what asks for a switch"
    listed = [each for asked in server.requests[1:] for each in model.about(asked)["elements"]]
    assert any("notes" in each for each in listed), "what was found out is told"

    found = [each for _, each in records(run_config, "evaluations", Evaluation)]
    assert {(each.version, each.version_sha256) for each in found} == {(PROMPTED, told.sha256)}
    described = json.loads(open_store(run_config.store).get_named(f"agents/{told.sha256}.json") or b"")
    assert (described["model"], described["prompts_sha256"]) == ("scripted", prompt.FINGERPRINT)
    assert described["notes"] == json.loads((tmp_path / "notes.json").read_bytes())["apps"]

    asked = len(server.requests)
    again = command("appagent", "evaluate", "--episodes", str(TASKS), folder=tmp_path)
    assert f"{told.name} ({told.sha256[:12]}), test: {told.score.successes} of {TASKS} = " in again
    assert len(server.requests) == asked + 1, "each task is played once; the endpoint alone is tried"

    evaluate_versions(run_config, "last", Split.TEST, TASKS, threading.Event())
    shown = CliRunner().invoke(app, ["scores", "--json", "-c", str(tmp_path / "run.yaml")], catch_exceptions=False)
    rows = json.loads(shown.stdout)["scores"]
    assert [(row["policy"], row["episodes"], row["split"]) for row in rows] == [
        ("version 0", TASKS, "test"),
        (told.name, TASKS, "test"),
    ]
    assert rows[1]["success"] == told.score.success
    for_people = CliRunner().invoke(app, ["scores", "-c", str(tmp_path / "run.yaml")], env={"COLUMNS": "200"})
    assert told.name in for_people.output
    failures = CliRunner().invoke(app, ["failures", "--json", "-c", str(tmp_path / "run.yaml")], catch_exceptions=False)
    assert {row["agent"] for row in json.loads(failures.stdout)["rows"]} == {"", told.sha256[:12]}

    page = write_report(gather(run_config, Times()), tmp_path / "report")
    assert told.name in page.read_text()
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [row["policy"] for row in report["success_by_policy"]] == ["version 0", told.name]
    assert report["success_before"] == report["success_after"] == rows[0]["success"], "of the version"


def test_an_endpoint_that_goes_away_ends_it_and_it_goes_on_where_it_was(run_config: Config, server: Server) -> None:
    answer = server.replies[0]
    config = run_config.model_copy(update={"appagent": run_config.appagent.model_copy(update={"notes": None})})
    server.replies[:] = [answer] * 8 + [body(b"gone", 403)]
    with pytest.raises(ChatError, match="403"):
        evaluated(config)
    before = [each for _, each in records(config, "evaluations", Evaluation)]
    assert len(before) < TASKS
    assert all(each.trajectory.steps for each in before), "what the endpoint interrupted is in no record"
    server.replies[:] = [answer]
    told = evaluated(config)
    assert (told.left, told.score.episodes) == (0, TASKS)
    after = [each for _, each in records(config, "evaluations", Evaluation)]
    assert len(after) == len({each.trajectory.task_id for each in after}) == TASKS


def command(*words: str, folder: Path) -> str:
    """What `distrl` prints, as a process of its own with the settings of run.yaml."""
    line = [sys.executable, "-m", "distrl.cli.main", *words, "-c", "run.yaml"]
    done = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Times:
    setup_seconds = 0.0
    train_seconds = 0.0
