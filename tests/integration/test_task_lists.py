"""A user's own list on real servers: fed, played on simulated phones over adb, judged by its own checks, logged."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from distrl import config as settings
from distrl.config import Config
from distrl.evaluate.gather import records
from distrl.evaluate.run import evaluate_versions
from distrl.feeder.run import run_feeder
from distrl.types import Evaluation, Outcome, Split, Trajectory
from distrl.worker.run import run_worker
from served import phones_served, publish_untrained

pytestmark = pytest.mark.integration

DEADLINE_S = 60.0
PHONES = 2
ROWS = [
    {"instruction": "leave the notes alone", "check": {"app": "notes", "path": "notes", "lacks": "tea"}},
    {"instruction": "turn on the sun", "check": {"app": "clock", "path": "alarms", "contains": "noon"}},
    {"instruction": "look around"},
]
"""Whatever a policy does: done, not done (there is no such alarm), and for a judge to say, who is not there."""
OUTCOMES = {
    "leave the notes alone": (Outcome.SUCCESS, "ground-truth"),
    "turn on the sun": (Outcome.FAILURE, "ground-truth"),
    "look around": (Outcome.UNKNOWN, "none"),
}


@pytest.fixture
def run_config(
    broker: str,
    s3: settings.StoreSettings,
    adb_server: settings.AdbSettings,
    free_row: Callable[[int], int],
    tmp_path: Path,
) -> Iterator[Config]:
    """A run of a list on the session's servers, with quiet phones of its own and a version to act with."""
    file = tmp_path / "mine.jsonl"
    rows = [{**row, "split": "train"} for row in ROWS] + [{**row, "split": "test"} for row in ROWS[:2]]
    file.write_text("".join(f"{json.dumps({**row, 'steps': 2})}\n" for row in rows))
    port = free_row(PHONES)
    tree = {
        "run": f"list-{uuid.uuid4().hex[:8]}",
        "kafka": {"bootstrap": broker, "task_partitions": 2},
        "adb": adb_server.model_dump(),
        "phones": {
            "count": PHONES,
            "evaluation_count": 0,
            "base_port": port,
            "latency_median_ms": 1.0,
            "popup_probability": 0.0,
        },
        "devices": {"addresses": [f"127.0.0.1:{port + n}" for n in range(PHONES)]},
        "feeder": {"tasks": str(file), "outstanding": 4},
    }
    config = Config.model_validate(tree).model_copy(update={"store": s3})
    publish_untrained(config)
    with phones_served(config.phones, tmp_path):
        yield config


def test_a_users_list_is_fed_played_evaluated_and_judged_by_its_own_checks(
    run_config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        roles = [pool.submit(role, run_config, stop) for role in (run_worker, run_feeder)]
        try:
            played = wait_for(run_config, 2 * len(ROWS), lambda: next((r for r in roles if r.done()), None))
        finally:
            stop.set()
        for role in roles:
            role.result()

    first = played[: 2 * len(ROWS)]
    assert {each.task.instruction for each in first} == set(OUTCOMES)
    for each in played:
        assert (each.outcome, each.outcome_source) == OUTCOMES[each.task.instruction]
        assert (each.task.suite, each.task.max_steps) == ("mine", 2)
        assert len(each.steps) <= 2
    assert len({each.task_id for each in played}) == len(played)
    overlap = "mine.jsonl: 2 of 2 test tasks have an instruction that training has, 0 more its template"
    assert overlap in caplog.messages

    (told,) = evaluate_versions(run_config, "last", Split.TEST, 4, threading.Event())
    assert (told.score.episodes, told.score.successes) == (4, 2)
    held_out = [record.trajectory for _, record in records(run_config, "evaluations", Evaluation)]
    assert sorted(each.task.instruction for each in held_out) == sorted([row["instruction"] for row in ROWS[:2]] * 2)
    assert all((each.outcome, each.outcome_source) == OUTCOMES[each.task.instruction] for each in held_out)


def wait_for(config: Config, count: int, ended: Callable[[], object | None]) -> list[Trajectory]:
    """The trajectories of the run, once there are so many."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = [record for _, record in records(config, "trajectories", Trajectory)]
        if len(found) >= count:
            return found
        assert ended() is None, f"a role has ended: {ended()}"
        assert time.monotonic() < deadline, f"{len(found)} of {count} trajectories after {DEADLINE_S:.0f} s"
        time.sleep(0.2)
