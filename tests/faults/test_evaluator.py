"""The evaluator killed in the middle of a suite: each (version, task) is counted once, and none is left out."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
from distrl.evaluate.curves import BY_HAND, score
from distrl.evaluate.play import evaluation_tasks
from distrl.evaluate.run import VersionScore
from distrl.types import Split

from faults.live import LiveRun
from faults.roles import KILLED, Role

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

EPISODES = 6
YEAR_MS = 365 * 86_400_000


def wanted(run: LiveRun, split: Split, *versions: int) -> set[tuple[int, str]]:
    return {(version, task.task_id) for version in versions for task in evaluation_tasks(run.config, split, EPISODES)}


def named_versions(run: LiveRun, point: str | None = None, nth: int = 1) -> Role:
    return run.start("evaluation", "evaluate", "--versions", "0,1", "--episodes", str(EPISODES), point=point, nth=nth)


def finished(start: Callable[[], Role]) -> Role:
    """The command that `start` gives, once it has left no task out: on a busy machine a phone may be too slow each
    time, and the same command plays what is left."""
    for _ in range(3):
        role = start()
        assert role.wait() == 0
        if "have no record yet" not in role.said():
            return role
    raise AssertionError(role.said())


def follower(run: LiveRun, point: str | None = None, nth: int = 1) -> Role:
    sets = [f"evaluate.validation_episodes={EPISODES}", "evaluate.every_s=0.2"]
    return run.start("evaluator", "evaluate", sets=sets, point=point, nth=nth)


@pytest.mark.parametrize(
    ("point", "nth", "records"),
    [
        pytest.param("screenshot_stored", 2, 0, id="in_the_middle_of_an_episode", marks=pytest.mark.faults_long),
        pytest.param("evaluation_recorded", 4, 4, id="after_a_record_is_acknowledged", marks=pytest.mark.faults_long),
        pytest.param("evaluation_recorded", EPISODES + 2, EPISODES + 2, id="in_the_second_version"),
    ],
)
def test_an_evaluation_that_is_killed_goes_on_where_it_was(run: LiveRun, point: str, nth: int, records: int) -> None:
    run.publish_version(0)
    run.publish_version(1)
    killed = named_versions(run, point, nth)
    run.until(f"the evaluator to die: {point}", lambda: killed.code is not None)
    assert killed.code == KILLED
    assert records <= len(run.evaluations()) <= records + len(run.config.devices.addresses)
    again = finished(lambda: named_versions(run))
    counted = run.counted_evaluations()
    assert set(counted) == wanted(run, Split.TEST, 0, 1)
    assert len(run.evaluations()) == len(counted), "what was evaluated is not evaluated again"
    assert {each.worker for each in counted.values()} == {f"{run.config.evaluate.name}{BY_HAND}"}
    assert run.missing_objects() == []
    said = again.said().splitlines()
    for number in (0, 1):
        told = VersionScore(number, Split.TEST, score(each for (of, _), each in counted.items() if of == number))
        assert str(told) in said


def test_a_version_whose_evaluation_was_cut_off_is_finished_before_newer_ones(run: LiveRun) -> None:
    run.publish_version(0)
    killed = follower(run, "evaluation_recorded", nth=2)
    run.until("the evaluator to die", lambda: killed.code is not None)
    assert killed.code == KILLED
    assert 2 <= len(run.evaluations()) < EPISODES
    run.publish_version(1)
    run.publish_version(2)
    follower(run)
    run.until("the newest version", lambda: set(run.counted_evaluations()) >= wanted(run, Split.VALIDATION, 2))
    run.stop()
    assert set(run.counted_evaluations()) == wanted(run, Split.VALIDATION, 0, 2), "of version 1 nothing was begun"
    assert not any(each.worker.endswith(BY_HAND) for each in run.counted_evaluations().values())
    assert run.missing_objects() == []


def test_an_evaluator_waits_out_a_store_that_is_away(run: LiveRun, s3: str) -> None:
    run.publish_version(0)
    evaluator = follower(run)
    run.until("version 0", lambda: set(run.counted_evaluations()) >= wanted(run, Split.VALIDATION, 0))
    run.store_adapter(1)
    run.servers.kill(s3)
    run.publish_version(1)
    run.until("it to say so", lambda: "version 1 is evaluated later" in evaluator.said())
    run.servers.start(s3)
    run.until("version 1", lambda: set(run.counted_evaluations()) >= wanted(run, Split.VALIDATION, 1))
    run.stop()
    assert len(run.evaluations()) == len(run.counted_evaluations())


def test_a_version_whose_weights_are_spoilt_is_skipped(run: LiveRun) -> None:
    run.publish_version(0, spoilt=True)
    evaluator = follower(run)
    run.until("it to say so", lambda: "version 0 is skipped, and not evaluated" in evaluator.said())
    beats = len(run.beats(run.config.evaluate.name))
    run.until("heartbeats since", lambda: len(run.beats(run.config.evaluate.name)) >= beats + 2)
    assert {beat.version for beat in run.beats(run.config.evaluate.name)} == {None}, "none is evaluated so far"
    run.publish_version(1)
    run.until("version 1", lambda: set(run.counted_evaluations()) == wanted(run, Split.VALIDATION, 1))
    run.until("its score", lambda: run.beats(run.config.evaluate.name)[-1].version == 1)
    run.stop()
    assert run.beats(run.config.evaluate.name)[-1].metrics["evaluated"] == EPISODES
    assert run.beats(run.config.evaluate.name)[-1].metrics["evaluation_tasks"] == EPISODES
    assert evaluator.said().count("version 0 is skipped") == 1
    assert "version 0, validation: -" not in evaluator.said(), "nothing was played, so there is no score"


def test_a_learners_clock_that_is_ahead_has_no_version_evaluated_twice(run: LiveRun) -> None:
    run.publish_version(0, ahead_ms=YEAR_MS)
    for _ in range(2):
        role = finished(lambda: run.start("evaluation", "evaluate", "--versions", "0", "--episodes", str(EPISODES)))
        told = VersionScore(0, Split.TEST, score(run.counted_evaluations().values()))
        assert str(told) in role.said().splitlines()
    assert len(run.evaluations()) == EPISODES


@pytest.mark.faults_long
def test_an_evaluator_killed_at_10_random_instants_leaves_no_version_half_evaluated(
    run: LiveRun, rule: random.Random
) -> None:
    """Each kill falls into the second after the evaluator is at work; a version is published beside each."""
    kills = 10
    for version in range(kills):
        run.publish_version(version)
        begun = len(run.evaluations())
        killed = follower(run)
        run.until("another evaluation", lambda: len(run.evaluations()) > begun)  # noqa: B023
        threading.Event().wait(rule.uniform(0.0, 1.0))
        killed.kill()
        print(f"kill {version + 1}: {len(run.evaluations())} evaluations of {(version + 1) * EPISODES}")
    run.publish_version(kills)
    follower(run)
    newest = wanted(run, Split.VALIDATION, kills)
    run.until("the newest version", lambda: newest <= set(run.counted_evaluations()))
    run.stop()
    counted = run.counted_evaluations()
    begun_versions = {version for version, _ in counted}
    assert set(counted) == wanted(run, Split.VALIDATION, *begun_versions)
    assert run.missing_objects() == []
