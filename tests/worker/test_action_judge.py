"""What a judge says of a finished episode's actions, over a real endpoint on loopback; no phone waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import factories
import pytest
from chat.server import Reply, Server, body, says, serving, validity
from distrl.chat.endpoint import Endpoint
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import JudgeSettings, StoreSettings
from distrl.errors import StoreError
from distrl.judge.vlm import VlmJudge
from distrl.rollout.task_queue import Received
from distrl.store.objects import ObjectStore, open_store
from distrl.types import Action, ActionKind, LogPosition, ObjectRef, Outcome, Point, Task, Trajectory
from distrl.worker import action_judge as hindsight_module
from distrl.worker.action_judge import AsyncActionJudge, judged, max_held
from hypothesis import given
from hypothesis import strategies as st
from judge.test_validity import screen
from rollout.world import TAP, task
from waiting import until

TIMEOUT_S = 60.0
HOME = Action(ActionKind.HOME)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreSettings(url=f"file://{tmp_path}"))


def judge(server: Server, store: ObjectStore, timeout_s: float = 50.0) -> VlmJudge:
    settings = JudgeSettings(endpoint=server.url, model="m", timeout_s=timeout_s, requests_per_minute=60_000)
    return VlmJudge(Endpoint(settings, "judge"), "m", store, "verdicts/a-run")


def tap(at: float) -> Action:
    return Action(ActionKind.TAP, Point(at, 0.5))


def played(store: ObjectStore, *actions: Action, name: str = "t-0", outcome: Outcome = Outcome.FAILURE) -> Trajectory:
    """Each screen another shade of grey."""
    shots = [store.put("screenshots", screen(10 * number), "png") for number in range(len(actions) + 1)]
    steps = [factories.step(action, screenshot=shot) for shot, action in zip(shots, actions, strict=False)]
    return factories.trajectory(task(name), steps, final_screenshot=shots[-1], outcome=outcome)


def valid(trajectory: Trajectory) -> list[bool | None]:
    return [step.valid for step in trajectory.steps]


def asked(trajectory: Trajectory, by: VlmJudge, store: ObjectStore, most: int = 20) -> Trajectory:
    return last(judged(trajectory, by, store.get, most, lambda: 60.0), trajectory)


def last(found: Iterable[Trajectory], unjudged: Trajectory) -> Trajectory:
    """With all verdicts."""
    return [unjudged, *found][-1]


def test_each_action_gets_what_the_judge_says_of_it_and_who_says_so(store: ObjectStore) -> None:
    with serving(validity(True), says("It is fine."), validity(False)) as server:
        found = asked(played(store, tap(0.1), HOME, tap(0.2), tap(0.3)), judge(server, store), store)
    assert valid(found) == [True, None, None, False]
    assert found.validity_source == "vlm:m"
    assert len(server.requests) == 3


def test_at_most_so_many_are_asked_about(store: ObjectStore) -> None:
    with serving(validity(False)) as server:
        found = asked(played(store, *[tap(n / 10) for n in range(6)]), judge(server, store), store, most=2)
    assert valid(found) == [False, False, None, None, None, None]
    assert len(server.requests) == 2


def test_once_nobody_answers_the_others_are_not_asked_about(store: ObjectStore) -> None:
    busy = body(b"", 429, {"Retry-After": "60"})
    with serving(validity(False), busy) as server:
        found = asked(played(store, tap(0.1), tap(0.2), tap(0.3)), judge(server, store), store)
        assert valid(found) == [False, None, None]
        assert len(server.requests) == 2


@pytest.mark.parametrize("reply", [body(b"who are you", 401), body(b"", 500, {"Retry-After": "60"})])
def test_a_judge_that_says_nothing_leaves_the_trajectory_as_it_was(store: ObjectStore, reply: Reply) -> None:
    trajectory = played(store, tap(0.1), tap(0.2))
    with serving(reply) as server:
        assert asked(trajectory, judge(server, store), store) == trajectory


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_question_that_the_endpoint_does_not_take_costs_its_action_alone(store: ObjectStore, status: int) -> None:
    with serving(validity(True), body(b"filtered", status), validity(False)) as server:
        found = asked(played(store, tap(0.1), tap(0.2), tap(0.3)), judge(server, store), store)
    assert valid(found) == [True, None, False]
    assert len(server.requests) == 3


def test_a_screen_that_cannot_be_had_or_is_none_costs_its_action_alone(store: ObjectStore) -> None:
    trajectory = played(store, tap(0.1), tap(0.2), tap(0.3), tap(0.4))

    def image(ref: ObjectRef) -> bytes:
        if ref == trajectory.steps[0].screenshot:
            raise StoreError(ref.key, "is not in the store", "put it there")
        return b"\x89PNG" if ref == trajectory.steps[2].screenshot else store.get(ref)

    with serving(validity(True)) as server:
        found = last(judged(trajectory, judge(server, store), image, 20, lambda: 60.0), trajectory)
    assert valid(found) == [None, True, None, True]


class Held:
    """A reply that waits until it is let go."""

    def __init__(self, reply: Reply) -> None:
        self.asked, self.let_go, self._reply = threading.Semaphore(0), threading.Event(), reply

    def __call__(self, to: object) -> None:
        self.asked.release()
        self.let_go.wait(30)
        self._reply(to)  # type: ignore[arg-type]


class Delivered:
    def __init__(self) -> None:
        self.found: dict[str, Trajectory] = {}
        self._changed = threading.Condition()

    def __call__(self, received: Received, trajectory: Trajectory) -> None:
        assert received.task == trajectory.task
        with self._changed:
            self.found[trajectory.task_id] = trajectory
            self._changed.notify_all()

    def wait(self, *names: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: {*names} <= self.found.keys(), 30)


def received(of: Task) -> Received:
    return Received(LogPosition("tasks", 0, 0), of)


Begin = Callable[..., AsyncActionJudge]


@pytest.fixture
def begin(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    monkeypatch.setattr(hindsight_module, "LOOK_S", 0.01)
    begun: list[AsyncActionJudge] = []

    def start(
        by: VlmJudge,
        deliver: Delivered,
        room: int = 9,
        clock: Clock = SYSTEM_CLOCK,
        image: Callable[[ObjectRef], bytes] = store.get,
    ) -> AsyncActionJudge:
        made = AsyncActionJudge(by, image, deliver, 20, TIMEOUT_S, room, clock)
        begun.append(made)
        made.start()
        return made

    yield start
    for each in begun:
        each.stop_asking()
        each.stop()
        each.join(30)
        assert not each.running


def test_a_slot_hands_over_at_once_and_the_judge_s_word_is_in_what_is_delivered(
    store: ObjectStore, begin: Begin
) -> None:
    held, delivered = Held(validity(False)), Delivered()
    with serving(held) as server:
        action_judge = begin(judge(server, store), delivered)
        trajectory = played(store, TAP)
        action_judge.hand_over(received(trajectory.task), trajectory)
        assert held.asked.acquire(timeout=30)
        assert delivered.found == {}, "the actor goes on, the judge is still thinking"
        held.let_go.set()
        delivered.wait("t-0")
        assert valid(delivered.found["t-0"]) == [False]
        assert action_judge.metrics() == {
            "actions_judged": 1.0,
            "actions_invalid": 1.0,
            "actions_unjudged": 0.0,
            "judge_queue": 0.0,
        }


@given(st.integers(1, 600), st.integers(1, 2000))
def test_as_many_tasks_are_there_for_free_phones_as_are_held(actors: int, outstanding: int) -> None:
    held = max_held(actors, outstanding)
    assert 0 <= held <= 2 * actors
    assert held == 0 or actors + 2 * held <= outstanding
    assert held == 2 * actors or actors + 2 * (held + 1) > outstanding, "no verdict is given away"


def test_what_finds_no_room_is_delivered_unjudged_and_counted_and_room_comes_back(
    store: ObjectStore, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hindsight_module, "THREADS", 1)
    held, delivered = Held(validity(True)), Delivered()
    with serving(held) as server:
        action_judge = begin(judge(server, store), delivered, room=3)
        one, *more = (played(store, tap(n / 10), name=f"t-{n}") for n in range(5))
        action_judge.hand_over(received(one.task), one)
        assert held.asked.acquire(timeout=30)
        for each in more:
            action_judge.hand_over(received(each.task), each)
        assert delivered.found.keys() == {"t-3", "t-4"}
        held.let_go.set()
        delivered.wait("t-0", "t-1", "t-2")
        assert [valid(delivered.found[f"t-{n}"]) for n in range(5)] == [[True], [True], [True], [None], [None]]
        assert action_judge.metrics()["actions_unjudged"] == 2
        again = played(store, tap(0.1), name="again")
        action_judge.hand_over(received(again.task), again)
        delivered.wait("again")
        assert valid(delivered.found["again"]) == [True]


def test_what_is_held_at_a_stop_is_delivered_with_what_was_said_until_then(
    store: ObjectStore, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hindsight_module, "THREADS", 1)
    held, delivered = Held(validity(False)), Delivered()
    with serving(held) as server:
        action_judge = begin(judge(server, store), delivered)
        for name in ("t-0", "t-1"):
            trajectory = played(store, tap(0.1), tap(0.2), name=name)
            action_judge.hand_over(received(trajectory.task), trajectory)
        assert held.asked.acquire(timeout=30)
        action_judge.stop_asking()
        delivered.wait("t-1")
        late = played(store, tap(0.3), name="late")
        action_judge.hand_over(received(late.task), late)
        delivered.wait("late")
        assert "t-0" not in delivered.found, "its question is under way"
        held.let_go.set()
        delivered.wait("t-0")
        assert valid(delivered.found["t-0"]) == [False, None]
        assert valid(delivered.found["t-1"]) == [None, None]
        assert valid(delivered.found["late"]) == [None]
        assert len(server.requests) == 1


def test_a_trajectory_is_delivered_at_its_deadline_however_long_it_waited_and_was_asked_about(
    store: ObjectStore, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hindsight_module, "THREADS", 1)
    at, both, delivered = [0.0], threading.Event(), Delivered()

    def after_25_s(to: BaseHTTPRequestHandler) -> None:
        both.wait(30)
        at[0] += 25.0
        if at[0] >= TIMEOUT_S:
            delivered.wait("slow")
        validity(True)(to)

    with serving(after_25_s) as server:
        action_judge = begin(
            judge(server, store, timeout_s=TIMEOUT_S), delivered, clock=Clock(lambda: at[0], lambda: at[0])
        )
        for name, places in (("slow", range(1, 6)), ("behind it", range(6, 8))):
            trajectory = played(store, *[tap(n / 10) for n in places], name=name)
            action_judge.hand_over(received(trajectory.task), trajectory)
        both.set()
        delivered.wait("slow", "behind it")
    assert valid(delivered.found["slow"]) == [True, True, None, None, None], "the third answer comes after 60 s"
    assert valid(delivered.found["behind it"]) == [None, None]
    assert len(server.requests) == 3, "none is asked once 60 s are over"


def test_a_store_that_does_not_answer_holds_no_trajectory_beyond_its_deadline_and_no_stop(
    store: ObjectStore, begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judged thread waits in the store for the second screen of "slow"; "behind it" has nobody who asks."""
    monkeypatch.setattr(hindsight_module, "THREADS", 1)
    at, delivered = [0.0], Delivered()
    reads, let_go, asked_for = [3], threading.Event(), threading.Event()

    def image(ref: ObjectRef) -> bytes:
        reads[0] -= 1
        if reads[0] < 0:
            asked_for.set()
            assert let_go.wait(30)
        return store.get(ref)

    with serving(validity(False)) as server:
        action_judge = begin(
            judge(server, store), delivered, clock=Clock(lambda: at[0], lambda: at[0]), image=image, room=2
        )
        for name in ("slow", "behind it"):
            trajectory = played(store, tap(0.1), tap(0.2), tap(0.3), name=name)
            action_judge.hand_over(received(trajectory.task), trajectory)
        try:
            assert asked_for.wait(30)
            assert delivered.found == {}
            at[0] = TIMEOUT_S
            delivered.wait("slow", "behind it")
            action_judge.stop_asking()
            action_judge.stop()
            until(lambda: not action_judge.running)
        finally:
            let_go.set()
        assert action_judge.metrics() == {
            "actions_judged": 2.0,
            "actions_invalid": 2.0,
            "actions_unjudged": 4.0,
            "judge_queue": 0.0,
        }
    assert valid(delivered.found["slow"]) == [False, False, None], "what was said until then is kept"
    assert valid(delivered.found["behind it"]) == [None, None, None]


def test_a_question_has_the_time_that_its_trajectory_has_left(store: ObjectStore) -> None:
    left = iter([60.0, 60.0, 40.0, 10.0, 10.0])
    busy = body(b"", 429, {"Retry-After": "20"})
    with serving(validity(True), busy) as server:
        trajectory = played(store, tap(0.1), tap(0.2), tap(0.3))
        found = judged(trajectory, judge(server, store), store.get, 20, left.__next__)
        assert valid(last(found, trajectory)) == [True, None, None]
    assert len(server.requests) == 2


def test_what_nothing_is_learned_from_waits_for_nobody(store: ObjectStore, begin: Begin) -> None:
    delivered = Delivered()
    with serving(validity(False)) as server:
        action_judge = begin(judge(server, store), delivered)
        for outcome in (Outcome.UNKNOWN, Outcome.INTERRUPTED):
            trajectory = played(store, TAP, name=outcome.value, outcome=outcome)
            action_judge.hand_over(received(trajectory.task), trajectory)
            assert delivered.found[outcome.value] == trajectory
        assert server.requests == []


def test_a_delivery_that_fails_for_good_is_reported_to_the_worker(store: ObjectStore, begin: Begin) -> None:
    failed = threading.Event()

    class Refused(Delivered):
        def __call__(self, received: Received, trajectory: Trajectory) -> None:
            failed.set()
            raise ValueError("no room")

    with serving(validity(False)) as server:
        action_judge = begin(judge(server, store), Refused())
        trajectory = played(store, TAP)
        action_judge.hand_over(received(trajectory.task), trajectory)
        assert failed.wait(30)
        action_judge.stop()
        action_judge.join(30)
    with pytest.raises(ValueError, match="no room"):
        action_judge.check()
