"""A worker that acts through a model server, which dies and comes back: nothing is counted twice, and each step names
the weights that answered. An evaluator waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distrl.images import size
from distrl.offline.check import mismatch
from distrl.offline.mismatch import EXACT
from distrl.offline.topic_range import RangeRequest
from distrl.policy.actions import to_text
from distrl.policy.protocol import Tokenizer
from distrl.policy.registry import tokenizer_of
from distrl.rollout.served.names import name_of
from distrl.store.objects import ObjectStore
from distrl.tasks.suite import suites
from distrl.types import Action, ActionKind, Outcome, Point, Split, Step, Trajectory
from model_server import model_server
from policy.vlm.models import qwen25

from faults.live import LiveRun, trajectory

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TASKS = 3
"""In an update."""
STEPS = 3
DEMONSTRATIONS = 4
TAP = Action(ActionKind.TAP, touch=Point(0.25, 0.5))


def test_a_worker_goes_on_where_its_model_server_dies_and_comes_back(
    new_run: Callable[..., LiveRun], tmp_path: Path
) -> None:
    base = tmp_path / "base"
    base.mkdir()
    qwen25(base)
    with model_server(base) as server:
        run = new_run(served(base, tmp_path / "adapters", server.url))
        demonstrate(run)
        run.learner()
        run.worker()
        first = feed(run)
        run.until("a version that was learned from what was served", lambda: len(run.versions()) == 2)
        run.until("the worker to load it", lambda: run.loaded(run.roles["worker-0"]) == 1)
        server.hold = threading.Event()
        server.asked.clear()
        second = feed(run)
        run.until("a decision to be on its way", server.asked.is_set)
        server.away = True
        server.restart()
        server.hold.set()
        evaluator = run.start("evaluator", "evaluate", sets=["evaluate.validation_episodes=1"])
        run.until("the worker to see that it is away", lambda: "is asked for again" in run.roles["worker-0"].said())
        run.until("the evaluator to see it", lambda: "version 1 is evaluated later" in evaluator.said())
        run.stop("evaluator")
        server.away, server.hold = False, None
        run.until("every task to be counted", lambda: set(run.counted()) == {*first, *second})
        run.until("every task to be committed", lambda: run.committed() == len(first + second))
        run.stop("worker-0")
        run.until("an update on what was served after that", lambda: len(run.versions()) == 3)
        run.end_learning()

        assert run.duplicates() == 0
        counted = run.counted()
        assert Outcome.INTERRUPTED not in {played.outcome for played in counted.values()}, "its episodes went on"
        names = {version.version: name_of(run.config.run, version) for version in run.versions()}
        for step in (step for played in counted.values() for step in played.steps):
            assert step.version_sha256.startswith(names[step.version].rpartition("-")[2])
            answers = [ids for name, ids in server.written if name == names[step.version]]
            assert any(step.action_ids[: len(ids)] == ids for ids in answers)
        acted = [{step.version for task in tasks for step in counted[task].steps} for tasks in (first, second)]
        assert acted == [{0}, {1}]
        assert server.events.count(("load", names[1])) == 2, "once more after its death"
        assert not server.adapters
        steps = sum(len(played.steps) for played in counted.values())
        checked = mismatch(run.config, RangeRequest(run.config.run), steps=2 * steps, rows=4)
        assert checked.by_name["learner and server"].steps == checked.by_name["server and record"].steps == steps
        checked.refuse_above(EXACT)
        assert not server.adapters, "what was loaded for the check is unloaded"
    assert run.missing_objects() == []


def served(base: Path, adapters: Path, url: str) -> dict[str, Any]:
    server = {"endpoint": url, "adapters": str(adapters), "timeout_s": 60.0, "wait_s": 300.0}
    return {
        "policy": {
            "base_model": str(base),
            "lora_rank": 2,
            "lora_alpha": 4,
            "dialect": "json",
            "system_prompt": "Act.",
            "action_tokens": 48,
            "server": server,
        },
        "warmup": {"demonstrations": DEMONSTRATIONS, "updates": 2, "minibatches": 1, "batch_size": 4},
    }


def demonstrate(run: LiveRun) -> None:
    """What people would have shown, in the words of the run's policy."""
    tokenizer = tokenizer_of(run.config.policy)
    for number in range(DEMONSTRATIONS):
        shown = in_words_of(tokenizer, trajectory(run.store, number, expert=True), run.store)
        run.publish("demonstrations", shown.task_id, shown)


def in_words_of(tokenizer: Tokenizer, played: Trajectory, store: ObjectStore) -> Trajectory:
    def step(each: Step) -> Step:
        screen = size(store.get(each.screenshot))
        return replace(
            each,
            prompt_ids=tokenizer.encode_prompt(played.task.instruction, [], screen),
            action=TAP,
            action_text=to_text(TAP),
            action_ids=tokenizer.encode_action(TAP, screen),
        )

    return replace(played, steps=tuple(map(step, played.steps)))


def feed(run: LiveRun) -> list[str]:
    """Further short tasks; their ids."""
    suite, begin = suites()[run.config.feeder.suite], len(run.fed)
    for index in range(begin, begin + TASKS):
        task = replace(suite.task(index, run.config.learner.seed, Split.TRAIN), max_steps=STEPS)
        run.publish("tasks", task.task_id, task)
        run.fed.append(task.task_id)
    return run.fed[begin:]
