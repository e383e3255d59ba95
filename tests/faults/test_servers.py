"""Servers killed under load: every role waits them out, and the run ends as if they had always been there."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from distrl.feeder.facts import next_retry
from distrl.types import Outcome

from faults.live import PHONES, UNHURRIED, WARMUP, LiveRun
from faults.roles import Role

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PER_UPDATE = 3
HANGS_S = 30.0
"""Some requests to a store that hangs, tries included; far less than one for each record."""
STALLED = "storing a screenshot failed; next attempt in 0.25 s"
"""What a phone's thread says when the store first fails it."""


def start_all(run: LiveRun, *sets: str) -> None:
    """sets: settings of the worker."""
    run.record(demonstrations=6)
    run.learner()
    run.worker(sets=sets)
    run.start("feeder", "feed")
    run.until("two updates of the policy", lambda: len(run.updates()) >= WARMUP + 2)


def end_all(run: LiveRun) -> None:
    """Every task that was fed has its trajectory, no object is missing, and the learner is where a fresh one comes."""
    run.stop("feeder")
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.stop("worker-0")
    run.until_learned()
    run.end_learning()
    assert run.missing_objects() == []


def test_a_broker_killed_under_load_costs_nothing(run: LiveRun) -> None:
    start_all(run)
    run.restarted = {"learner"}  # its transaction may run out before the broker is back
    before = len(run.trajectories())
    run.servers.kill("kafka")
    run.servers.start("kafka")
    assert len(run.trajectories()) >= before, "what was acknowledged is there"
    before = len(run.counted())
    run.until("the run to go on", lambda: len(run.counted()) >= before + 12)
    end_all(run)
    attempts = [logged.trajectory.attempt_id for logged in run.trajectories()]
    assert len(attempts) == len(set(attempts)), "a task may have been handed out again, a record is never repeated"


@pytest.mark.faults_long
def test_a_broker_that_hangs_is_waited_out(run: LiveRun) -> None:
    """SIGSTOP: connections stay open and nobody answers. Longer than a session, so that its clients give it up."""
    start_all(run, UNHURRIED)
    run.restarted = {"learner"}
    worker = run.roles["worker-0"]
    run.until_all_play(worker)
    run.servers.signal("kafka", signal.SIGSTOP)
    try:
        run.until("each phone to hold one record", lambda: worker.said().count("is not acknowledged yet") >= PHONES)
    finally:
        run.servers.signal("kafka", signal.SIGCONT)
    before = len(run.counted())
    run.until("the run to go on", lambda: len(run.counted()) >= before + 12)
    end_all(run)


def test_a_learner_whose_store_is_away_pauses_and_reads_on(run: LiveRun, s3: str) -> None:
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.store_screens()
    learner = run.learner()
    run.until_learned(WARMUP + 1)
    run.servers.kill(s3)
    run.record(trajectories=3 * PER_UPDATE)
    run.until("the learner to say so", lambda: "waiting for the store" in learner.said())
    run.until("it to read on", lambda: pending(run, learner) >= PER_UPDATE)
    assert len(run.versions()) == 2, "no version without its weights"
    run.servers.start(s3)
    run.until_learned(WARMUP + 4)
    run.end_learning()


def test_a_learner_whose_store_is_away_reads_no_more_than_its_memory_holds(run: LiveRun, s3: str) -> None:
    """Of a long log it would else read a batch at each attempt, for as long as the store is away."""
    most = 2 * PER_UPDATE
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.store_screens()
    learner = run.learner("reads_few_ahead", nth=most)
    run.until_learned(WARMUP + 1)
    run.servers.kill(s3)
    run.record(trajectories=2 * most)  # more than the update that the learner may still fold
    run.until("the learner to say so", lambda: tries(learner) > 0)
    run.until("it to read on", lambda: pending(run, learner) >= most)
    held = pending(run, learner)
    run.record(trajectories=most)
    tried = tries(learner)
    run.until("further attempts", lambda: tries(learner) >= tried + 3)
    assert pending(run, learner) == held
    run.servers.start(s3)
    run.until_learned(WARMUP + 1 + 3 * most // PER_UPDATE)
    run.end_learning()


def pending(run: LiveRun, learner: Role) -> float:
    return run.beats("learner", learner)[-1].metrics["pending"]


def tries(learner: Role) -> int:
    return learner.said().count("waiting for the store")


def test_a_learner_whose_store_hangs_reads_on_and_can_be_stopped(new_run: Callable[..., LiveRun], s3: str) -> None:
    """SIGSTOP: each request lasts until its deadline, and as many as there are records would take minutes."""
    run = new_run({"store": {"timeout_s": 1.0}})
    run.record(demonstrations=6, trajectories=PER_UPDATE)
    run.store_screens()
    learner = run.learner()
    run.until_learned(WARMUP + 1)
    run.servers.signal(s3, signal.SIGSTOP)
    try:
        run.record(trajectories=60)
        run.until("the learner to say so", lambda: "waiting for the store" in learner.said())
        run.until("it to read all", lambda: pending(run, learner) >= 60, HANGS_S)
        run.stop("learner")
    finally:
        run.servers.signal(s3, signal.SIGCONT)
    run.learner()
    run.until_learned(WARMUP + 21)
    run.end_learning()


def stands_still(run: LiveRun, worker: Role) -> bool:
    """For three heartbeats. What a dying store still answered may become a record; that phone waits later."""
    before = (len(run.trajectories()), worker.said().count(STALLED))
    beats = len(run.beats("worker-0"))
    run.until("three more heartbeats", lambda: len(run.beats("worker-0")) >= beats + 3)
    return (len(run.trajectories()), worker.said().count(STALLED)) == before


def test_a_worker_whose_store_is_away_starts_no_episode_and_goes_on_afterwards(run: LiveRun, s3: str) -> None:
    run.publish_version(0)
    worker = run.worker()
    run.start("feeder", "feed")
    run.until("some records", lambda: len(run.trajectories()) >= 4)
    run.servers.kill(s3)
    run.until("every phone to wait", lambda: worker.said().count(STALLED) >= PHONES)
    run.until("three heartbeats without a record or a new wait", lambda: stands_still(run, worker))
    run.servers.start(s3)
    before = len(run.counted())
    run.until("the run to go on", lambda: len(run.counted()) >= before + 12)
    run.stop("feeder")
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.stop()
    assert run.duplicates() == 0
    assert run.missing_objects() == []
    assert {each.outcome for each in run.counted().values()} <= {Outcome.SUCCESS, Outcome.FAILURE}


def test_an_adb_server_killed_under_load_is_started_again_and_what_it_interrupted_is_fed_again(run: LiveRun) -> None:
    run.publish_version(0)
    run.worker()
    run.start("feeder", "feed")
    run.until("some records", lambda: len(run.counted()) >= 6)
    run.servers.kill("adb")
    run.until("an interrupted episode", lambda: bool(interrupted(run)))
    run.until("its task to be fed again and done", lambda: all(done_again(run, each) for each in interrupted(run)))
    before = len(run.counted())
    run.until("the run to go on", lambda: len(run.counted()) >= before + 12)
    run.stop("feeder")
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.stop()
    assert len(interrupted(run)) <= 3 * PHONES
    assert run.missing_objects() == []


def interrupted(run: LiveRun) -> list[str]:
    return [each.task_id for each in run.counted().values() if each.outcome is Outcome.INTERRUPTED]


def done_again(run: LiveRun, task_id: str) -> bool:
    """Whether the task, under the id of a retry, has ended."""
    retry = next_retry(task_id, run.config.feeder.max_retries)
    return retry is None or retry in run.counted()
