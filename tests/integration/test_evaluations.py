"""Which played tasks get a record of their evaluation, on a real broker."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.journal import Journal
from distrl.config import Config, load
from distrl.evaluate import run as evaluator
from distrl.evaluate.play import Keep, known_of, play_and_publish
from distrl.evaluate.policies import PolicyId
from distrl.rollout.episode import Episode
from distrl.store.objects import open_store
from distrl.types import Evaluation, Outcome, Split, Task, Version
from waiting import until

pytestmark = pytest.mark.integration

POLICY = PolicyId(0, "c" * 64)
TASKS = [factories.task(f"task-{number}", split=Split.VALIDATION) for number in range(3)]


@pytest.fixture
def config(broker: str, tmp_path: Path) -> Config:
    sets = [f"run=evaluations-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", f"store.url=file://{tmp_path}"]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    return made


def played(config: Config, outcomes: dict[str, Outcome]) -> list[str]:
    """Play the tasks that have no record yet, each with its outcome; returns which they were."""
    known = known_of(config, POLICY, Split.VALIDATION, 0)
    left = [task for task in TASKS if task.task_id not in known]

    def play(
        tasks: Sequence[Task], episode: Episode, keep: Keep, *, stop: threading.Event, give_up: threading.Event
    ) -> None:
        for task in tasks:
            keep(factories.trajectory(task, outcome=outcomes.get(task.task_id, Outcome.SUCCESS)))

    play_and_publish(config, open_store(config.store), POLICY, left, play, threading.Event())
    return [task.task_id for task in left]


def test_a_task_that_was_interrupted_has_no_record_and_the_next_evaluation_plays_it_again(config: Config) -> None:
    failed = {"task-0": Outcome.FAILURE, "task-1": Outcome.INTERRUPTED}
    assert played(config, failed) == ["task-0", "task-1", "task-2"]
    assert known_of(config, POLICY, Split.VALIDATION, 0).keys() == {"task-0", "task-2"}
    assert played(config, {}) == ["task-1"], "the server that was away is back"
    found = known_of(config, POLICY, Split.VALIDATION, 0)
    assert [found[task.task_id].trajectory.outcome.value for task in TASKS] == ["failure", "success", "success"]


def test_a_version_is_evaluated_again_some_times_where_tasks_were_interrupted_and_no_newer_one_waits_for_it(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, stop = Counter[int](), threading.Event()

    def interrupted(config: Config, version: Version, *_: object, **__: object) -> list[Evaluation]:
        played[version.version] += 1
        return []

    monkeypatch.setattr(evaluator, "evaluate_version", interrupted)
    often = config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"every_s": 0.05})})
    with Journal(config) as journal:
        journal.publish_version(factories.version(0))
        thread = threading.Thread(target=evaluator.run_evaluator, args=(often, stop), daemon=True)
        thread.start()
        try:
            until(lambda: played[0] == evaluator.TIMES, "version 0 was played TIMES times")
            journal.publish_version(factories.version(1))
            until(lambda: played[1] == evaluator.TIMES, "version 1 was played TIMES times")
        finally:
            stop.set()
            thread.join(60)
    assert not thread.is_alive()
    assert played == {0: evaluator.TIMES, 1: evaluator.TIMES}
