"""Workers killed, cut off and misled: every task that was fed is counted once, and no screenshot is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from chat.server import serving
from confluent_kafka import KafkaError, Producer
from distrl.broker.connect import settings
from distrl.broker.topics import topic_name
from distrl.device.leases import Hold, Leases
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.types import Outcome
from groups import members
from waiting import until

from faults.live import PATIENCE_S, PHONES, UNHURRIED, LiveRun
from faults.proxy import Proxy
from faults.roles import KILLED

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ONE_PHONE = 4


@pytest.mark.parametrize(
    ("point", "nth", "records", "duplicates"),
    [
        pytest.param("screenshot_stored", 2, 0, 0, id="in_the_middle_of_an_episode"),
        pytest.param("before_record", 1, 0, 0, id="after_the_screenshots_before_the_record"),
        pytest.param("after_record", 1, 1, 1, id="after_the_record_before_the_commit"),
    ],
)
def test_a_worker_killed(run: LiveRun, point: str, nth: int, records: int, duplicates: int) -> None:
    run.publish_version(0)
    killed = run.worker(0, of=ONE_PHONE, point=point, nth=nth)
    fed = run.feed(6)
    run.until(f"the worker to die: {point}", lambda: killed.code is not None)
    assert (killed.code, len(run.trajectories())) == (KILLED, records)
    run.worker()
    run.until("every task to be counted", lambda: set(run.counted()) == set(fed))
    run.until("every task to be committed", lambda: run.committed() == len(fed))
    run.stop()
    assert run.duplicates() == duplicates
    assert run.missing_objects() == []


def test_a_worker_killed_while_a_judge_is_asked_about_actions_has_committed_no_episode_that_is_held(
    new_run: Callable[..., LiveRun],
) -> None:
    over = threading.Event()
    with serving(lambda to: over.wait(PATIENCE_S)) as judge:
        patient = {"timeout_s": 2 * PATIENCE_S, "requests_per_minute": 60_000}
        asked = {"endpoint": judge.url, "model": "m", "validity": "vlm", **patient}
        run = new_run({"judge": asked, "kafka": {"task_partitions": 1}})
        run.publish_version(0)
        killed = run.worker(0, of=ONE_PHONE)
        while len(judge.requests) < 2:  # max_held of one phone; episodes without an action to ask about go by
            run.feed(4)
            run.until(
                "each episode to be held or recorded",
                lambda: len(judge.requests) + len(run.counted()) >= len(run.tasks()),
            )
        killed.kill()
        over.set()
    counted = run.counted()
    done = [task in counted for task in run.tasks()]
    assert run.committed() <= done.index(False), "none from the first that is held on, though later ones are recorded"
    assert run.duplicates() == 0
    assert run.missing_objects() == []


def test_a_worker_whose_phones_another_process_has_holds_no_task_until_one_is_its_own_and_answers(run: LiveRun) -> None:
    leases = Leases(run.config.devices.directory, run.config.adb)
    theirs = run.config.devices.addresses[1::2]
    holds = [leases.take(address) for address in theirs]
    run.publish_version(0)
    idle = run.worker(1, of=2)
    run.until("it to say that it has no phone", lambda: "no phone answers (2 held)" in idle.said())
    fed = run.feed(12)
    run.worker(0, of=2)
    run.until("the other worker to play every task", lambda: set(run.counted()) == set(fed))
    assert {beat.partitions for beat in run.beats("worker-1")} == {()}
    for hold in holds:
        assert isinstance(hold, Hold)
        hold.release()
    run.until("it to own partitions once the phones are free", lambda: bool(run.beats("worker-1")[-1].partitions))
    server = AdbServer(run.config.adb)
    for address in theirs:  # gone for longer than membership.AWAY_S
        AdbSession(server, address, run.config.devices).shell("simctl fault gone 25")
    fed += run.feed(16)
    run.until("it to leave when its phones are gone", lambda: idle.said().count("no phone answers") == 2)
    run.until("every task to be counted all the same", lambda: set(run.counted()) == set(fed))
    run.until("it to come back with its phones", lambda: bool(run.beats("worker-1")[-1].partitions))
    run.until("every task to be committed", lambda: run.committed() == len(fed))
    run.stop()
    assert run.missing_objects() == []


def test_a_lost_acknowledgement_costs_no_second_record(run: LiveRun, proxy: Proxy) -> None:
    run.publish_version(0)
    proxy.swallow_answer(b"trajectories")
    run.worker(sets=[f"kafka.bootstrap=127.0.0.1:{proxy.port}"])
    fed = run.feed(6)
    run.until("an acknowledgement to be lost", proxy.swallowed.is_set)
    run.until("every task to be counted", lambda: set(run.counted()) == set(fed))
    run.until("every task to be committed", lambda: run.committed() == len(fed))
    run.stop()
    assert run.duplicates() == 0
    assert run.missing_objects() == []


def test_a_broker_that_is_away_stops_new_episodes_and_the_worker_goes_on_unaided(run: LiveRun, proxy: Proxy) -> None:
    run.publish_version(0)
    worker = run.worker(sets=[f"kafka.bootstrap=127.0.0.1:{proxy.port}", UNHURRIED])
    run.start("feeder", "feed")
    run.until("some records", lambda: len(run.trajectories()) >= 4)
    run.until_all_play(worker)
    proxy.cut()
    run.until("each phone to hold one record", lambda: worker.said().count("is not acknowledged yet") >= PHONES)
    assert worker.said().count("is not acknowledged yet") == PHONES, "four phones, one unpublished trajectory each"
    before = len(run.trajectories())
    assert before < len(run.tasks())
    proxy.hint()
    run.until("the run to go on", lambda: len(run.trajectories()) >= before + 12)
    run.stop("feeder")
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.stop()
    assert run.duplicates() == 0
    assert run.missing_objects() == []


@pytest.mark.faults_long
def test_a_broker_that_is_away_until_the_group_has_put_the_worker_out_costs_repetitions_alone(
    run: LiveRun, proxy: Proxy
) -> None:
    run.publish_version(0)
    worker = run.worker(sets=[f"kafka.bootstrap=127.0.0.1:{proxy.port}", UNHURRIED])
    run.start("feeder", "feed")
    run.until("some records", lambda: len(run.trajectories()) >= 4)
    run.until_all_play(worker)
    proxy.cut()
    run.until("each phone to hold one record", lambda: worker.said().count("is not acknowledged yet") >= PHONES)
    before = len(run.trajectories())
    run.until("the worker to be put out", lambda: members(run.config) == 0)
    assert worker.said().count("is not acknowledged yet") == PHONES, "nothing was begun in all that time"
    assert len(run.trajectories()) == before
    uncommitted = before + PHONES - run.committed()
    proxy.hint()
    run.until("the run to go on", lambda: len(run.trajectories()) >= before + 12)
    run.stop("feeder")
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.stop()
    assert run.duplicates() <= uncommitted, "played and not committed, so that its task was handed out again"
    assert run.missing_objects() == []


def come_and_go(run: LiveRun, tasks: int, changes: int) -> None:
    """Workers join one after the other; each second one that leaves is killed, the others stop in order."""
    run.publish_version(0)
    fed = run.feed(tasks)
    run.worker(0, of=4)
    for change in range(1, changes + 1):
        number = 1 + change % 3
        name = f"worker-{number}"
        if name in run.roles:
            leaving = run.roles[name]
            if change % 2:
                leaving.kill()
            else:
                leaving.stop()
        before = len(run.counted())
        run.worker(number, of=4)
        run.until("some more records", lambda: len(run.counted()) > before)  # noqa: B023
    run.until("every task to be counted", lambda: set(run.counted()) == set(fed))
    run.stop()
    assert run.missing_objects() == []
    assert run.duplicates() <= 2, "the one killed worker held one phone: at most a record and its repetition"


def test_workers_that_come_and_go_4_times_leave_every_task_counted_once(run: LiveRun) -> None:
    come_and_go(run, tasks=30, changes=4)


@pytest.mark.faults_long
def test_workers_that_come_and_go_leave_every_task_counted_once(run: LiveRun) -> None:
    come_and_go(run, tasks=60, changes=6)


def test_a_record_too_large_is_reported_and_counts_as_interrupted_while_the_worker_goes_on(run: LiveRun) -> None:
    run.publish_version(0)
    run.worker(sets=["kafka.max_record_bytes=2000"])
    fed = run.feed(8)
    run.until("every task to be counted", lambda: set(run.counted()) == set(fed))
    run.stop()
    outcomes = {each.outcome for each in run.counted().values()}
    assert Outcome.INTERRUPTED in outcomes
    for each in run.counted().values():
        if each.outcome is Outcome.INTERRUPTED:
            assert (each.steps, "is larger than the 2000 that are allowed" in each.note) == ((), True)


def test_a_record_too_large_for_the_broker_alone_counts_as_interrupted_too(run: LiveRun) -> None:
    run.publish_version(0)
    run.alter("trajectories", {"max.message.bytes": "900"})  # of a batch, which records of several phones may share
    run.worker()
    fed = run.feed(4)
    run.until("every task to be counted", lambda: set(run.counted()) == set(fed))
    run.stop()
    notes = {each.note for each in run.counted().values() if each.outcome is Outcome.INTERRUPTED}
    assert notes == {"the broker refuses as too large a record that kafka.max_record_bytes (1048576) allows"}


def test_weights_that_are_not_those_of_their_version_are_refused_and_the_old_ones_stay(run: LiveRun) -> None:
    run.publish_version(0)
    worker = run.worker()
    run.until("version 0", lambda: run.loaded(worker) == 0)
    spoilt = run.publish_version(1, spoilt=True)
    run.until("an alert", lambda: run.beats("worker-0", worker)[-1].metrics["reload_alerts"] == 1)
    assert "version 1 is refused, the old weights stay" in worker.said()
    fed = run.feed(4)
    run.until("every task to be counted", lambda: set(run.counted()) == set(fed))
    acted = {step.version_sha256 for each in run.counted().values() for step in each.steps}
    assert acted == {run.versions()[0].adapter.sha256} != {spoilt.adapter.sha256}
    run.publish_version(2)
    run.until("version 2", lambda: run.loaded(worker) == 2)
    run.stop()


def test_a_worker_with_another_base_model_than_the_versions_ends_before_it_takes_a_task(run: LiveRun) -> None:
    """It would hold tasks that it can never play. One that has weights goes on with them."""
    run.publish_version(0)
    old = run.worker()
    run.until("version 0", lambda: run.loaded(old) == 0)
    run.publish_version(1, base_sha256="f" * 64)
    run.until("an alert", lambda: run.beats("worker-0", old)[-1].metrics["reload_alerts"] == 1)
    run.stop()
    late = run.worker()
    until(lambda: late.code is not None, "it to end", PATIENCE_S)
    assert late.code == 1
    assert "version 1: belongs to base model ffffffffffff" in late.said()
    assert "taking tasks" not in late.said()


def test_versions_out_of_order_never_take_a_worker_back(run: LiveRun) -> None:
    run.publish_version(0)
    worker = run.worker()
    for number in (3, 1, 2):
        run.publish_version(number)
    run.until("version 3", lambda: run.loaded(worker) == 3)
    fed = run.feed(4)
    run.until("every task to be counted", lambda: set(run.counted()) == set(fed))
    assert {step.version for each in run.counted().values() for step in each.steps} == {3}
    run.publish_version(4)
    run.until("version 4", lambda: run.loaded(worker) == 4)
    run.stop()
    assert "version 1 loaded" not in worker.said().split("version 3 loaded")[1]


def test_a_clock_that_jumps_changes_no_result(new_run: Callable[..., LiveRun], tmp_path: Path) -> None:
    clock, beside = tmp_path / "ahead", tmp_path / "ahead.new"
    clock.write_text("0")
    run = new_run()
    run.record(demonstrations=6)
    run.start("learner", "learner", clock=clock)
    run.worker(clock=clock)
    run.start("feeder", "feed", clock=clock)
    for ahead in (0, 86_400 * 400, -86_400 * 30, 0):
        beside.write_text(str(ahead))
        beside.replace(clock)
        before = len(run.counted())
        run.until(f"records with the clock {ahead} s ahead", lambda: len(run.counted()) >= before + 6)  # noqa: B023
    run.stop("feeder")
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.stop("worker-0")
    run.until_learned()
    run.end_learning()
    assert run.duplicates() == 0
    assert run.missing_objects() == []
    assert {each.outcome for each in run.counted().values()} <= {Outcome.SUCCESS, Outcome.FAILURE}


def test_a_clock_hours_ahead_is_no_reason_to_refuse_a_record(run: LiveRun) -> None:
    """The clock of the machine itself, which librdkafka stamps records by; here, the stamp alone."""
    refused: list[KafkaError | None] = []
    producer = Producer(settings(run.config.kafka, "a clock that is ahead"))
    for name in ("tasks", "trajectories", "versions", "heartbeats"):
        stamp = int(time.time() * 1000) + 7 * 3_600_000
        producer.produce(
            topic_name(run.config.run, name),
            b"value",
            b"key",
            timestamp=stamp,
            on_delivery=lambda error, _: refused.append(error),
        )
    assert producer.flush(30.0) == 0
    assert refused == [None] * 4
