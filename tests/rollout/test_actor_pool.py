from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

import pytest
from distrl.errors import BrokerError
from distrl.rollout.actor_pool import ActorPool, Play, play_all, publish_or_drop_steps, without_steps
from distrl.rollout.back_pressure import AbandonedError, Retry
from distrl.rollout.decider import PolicyEndedError
from distrl.rollout.episode import Episode, Phone
from distrl.rollout.task_queue import Received, TaskQueue
from distrl.types import LogPosition, Outcome, Task, Trajectory, Unmet
from distrl.wire.codec import encode

from rollout.world import DONE, TAP, CountingPhone, OneByOne, Recorded, Shelf, task, twice


def playing(task: Task, phone: Phone) -> Trajectory:
    return Episode("w", Shelf().keep, twice).run(task, "a", phone, Recorded([TAP, TAP, DONE]))


def all_of(
    tasks: list[Task], fleet: OneByOne, play: Play = playing, retries: int = 2, stop: threading.Event | None = None
) -> tuple[list[Trajectory], bool]:
    kept: list[Trajectory] = []
    done = play_all(
        tasks,
        fleet,
        play,
        kept.append,
        worker="w",
        retries=retries,
        drain_s=10,
        stop=stop or threading.Event(),
        give_up=threading.Event(),
    )
    return kept, done


def test_every_task_is_played_once_whatever_the_number_of_phones() -> None:
    kept, done = all_of([task(f"t-{n}") for n in range(20)], OneByOne([CountingPhone(f"p-{n}") for n in range(3)]))
    assert done
    assert sorted(t.task_id for t in kept) == sorted(f"t-{n}" for n in range(20))
    assert {t.outcome for t in kept} == {Outcome.SUCCESS}


def test_whoever_waits_for_the_phones_is_heard_of_while_they_play() -> None:
    turned = threading.Event()

    def slow(task: Task, phone: Phone) -> Trajectory:
        assert turned.wait(30)
        return playing(task, phone)

    fleet, kept = OneByOne([CountingPhone()]), list[Trajectory]()
    given = {"worker": "w", "retries": 0, "drain_s": 10, "stop": threading.Event(), "give_up": threading.Event()}
    assert play_all([task()], fleet, slow, kept.append, turn=turned.set, **given)  # type: ignore[arg-type]
    assert len(kept) == 1


def test_an_interrupted_task_is_played_again_and_its_phone_goes_back_to_the_pool() -> None:
    phone = CountingPhone(fails_at=1)
    fleet = OneByOne([phone])

    def healing(task: Task, leased: Phone) -> Trajectory:
        played = playing(task, leased)
        phone.fails_at = None
        return played

    kept, done = all_of([task()], fleet, healing)
    assert done
    assert [t.outcome for t in kept] == [Outcome.SUCCESS]
    assert fleet.lent[:2] == ["phone-0", "phone-0"]


def test_a_policy_that_has_ended_ends_the_crew_and_makes_no_record() -> None:
    def ended(task: Task, phone: Phone) -> Trajectory:
        raise PolicyEndedError("worker", "the policy's thread has ended: ValueError: broken", "start it again")

    with pytest.raises(PolicyEndedError, match="ValueError: broken"):
        all_of([task()], OneByOne([CountingPhone()]), ended)


def test_a_phone_that_never_works_is_given_up_after_the_retries() -> None:
    phone = CountingPhone(fails_at=0)
    kept, done = all_of([task()], OneByOne([phone]), retries=2)
    assert done
    assert [t.outcome for t in kept] == [Outcome.INTERRUPTED]
    assert phone.resets == 3


def test_an_unforeseen_error_becomes_an_interrupted_trajectory_with_a_short_note() -> None:
    def broken(task: Task, phone: Phone) -> Trajectory:
        raise ZeroDivisionError("x" * 10_000)

    kept, done = all_of([task()], OneByOne([CountingPhone()]), broken, retries=0)
    assert done
    assert (kept[0].outcome, kept[0].steps) == (Outcome.INTERRUPTED, ())
    assert kept[0].note.startswith("ZeroDivisionError: xxx")
    assert len(kept[0].note) == 500


def test_a_stop_lets_the_running_episode_end_and_starts_no_other() -> None:
    stop, phone = threading.Event(), CountingPhone()

    def stopping(task: Task, leased: Phone) -> Trajectory:
        stop.set()
        return playing(task, leased)

    kept, done = all_of([task("a"), task("b")], OneByOne([phone]), stopping, stop=stop)
    assert not done or len(kept) == 2
    assert kept[0].outcome is Outcome.SUCCESS


def test_an_abandoned_episode_ends_its_slot_and_is_delivered_to_nobody() -> None:
    delivered: list[Trajectory] = []
    task_queue, give_up = TaskQueue(), threading.Event()

    def abandoning(task: Task, phone: Phone) -> Trajectory:
        raise AbandonedError("publishing", "was not done", "it is delivered again")

    actors = ActorPool(
        OneByOne([CountingPhone()]).lease, abandoning, lambda r, t: delivered.append(t), task_queue, give_up, "w"
    )
    task_queue.put(Received(LogPosition("tasks", 0, 0), task()))
    actors.start(1)
    assert actors.join(10)
    assert not delivered


def test_an_error_after_giving_up_is_an_abandoned_episode_and_no_trajectory() -> None:
    delivered: list[Trajectory] = []
    task_queue, give_up = TaskQueue(), threading.Event()

    def closed(task: Task, phone: Phone) -> Trajectory:
        give_up.set()
        raise RuntimeError("the policy has stopped")

    deliver: Callable[[Received, Trajectory], None] = lambda received, played: delivered.append(played)  # noqa: E731
    actors = ActorPool(OneByOne([CountingPhone()]).lease, closed, deliver, task_queue, give_up, "w")
    task_queue.put(Received(LogPosition("tasks", 0, 0), task()))
    actors.start(1)
    assert actors.join(10)
    assert not delivered


def test_a_trajectory_that_cannot_be_kept_ends_the_whole_and_says_so() -> None:
    def keep(trajectory: Trajectory) -> None:
        raise BrokerError("topic", "no right to write", "give the role its rights")

    stop, give_up, fleet = threading.Event(), threading.Event(), OneByOne([CountingPhone()])
    with pytest.raises(BrokerError, match="no right"):
        play_all([task()], fleet, playing, keep, worker="w", retries=0, drain_s=10, stop=stop, give_up=give_up)


def test_without_steps_keeps_whose_attempt_it_was() -> None:
    unmet = (Unmet("screen", "equals", "a", "b"),)
    whole = replace(playing(task(), CountingPhone()), unmet=unmet, final_state="{}", reason="no")
    small = without_steps(whole, "too large" * 1000)
    assert (small.unmet, small.final_state, small.reason) == ((), "", "")
    assert (small.task, small.attempt_id, small.device) == (whole.task, whole.attempt_id, whole.device)
    assert (small.steps, small.final_screenshot, small.outcome) == ((), None, Outcome.INTERRUPTED)
    assert len(small.note) == 500


def test_what_no_record_can_hold_ends_as_interrupted_and_not_its_worker() -> None:
    published = list[Trajectory]()

    def publish(trajectory: Trajectory) -> Future[LogPosition | None]:
        encode(trajectory)
        published.append(trajectory)
        done: Future[LogPosition | None] = Future()
        done.set_result(None)
        return done

    whole = replace(playing(task(), CountingPhone()), reason="half a pair: \ud83d")
    retry = Retry(threading.Event())
    written = publish_or_drop_steps(retry, "publishing", publish, whole)
    assert published == [written]
    assert (written.outcome, written.steps, written.reason) == (Outcome.INTERRUPTED, (), "")
    assert "cannot be written" in written.note
