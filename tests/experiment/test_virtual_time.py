"""The scheduler: order, determinism, errors, and no thread that is left behind."""

from __future__ import annotations

import random
import time as real
from collections import deque

import pytest
from distrl.experiment.virtual_time import Actor, StuckError, VirtualTime
from hypothesis import given, settings
from hypothesis import strategies as st

Naps = list[list[int]]
NAPS = st.lists(st.lists(st.integers(0, 5), max_size=5), min_size=1, max_size=6)


def slept(naps: Naps, really: float = 0.0) -> list[tuple[float, int]]:
    """(time, actor) of each waking; between two, an actor really takes up to `really` seconds."""
    time, seen = VirtualTime(), []

    def sleeper(number: int) -> None:
        for nap in naps[number]:
            time.sleep(nap)
            real.sleep(random.random() * really)
            seen.append((time.now, number))

    for number in range(len(naps)):
        time.start(f"sleeper {number}", lambda number=number: sleeper(number))
    time.run()
    return seen


@given(NAPS)
def test_actors_wake_in_the_order_of_time_and_then_of_their_number(naps: Naps) -> None:
    """Against a loop written from the definition: of those who sleep, the one with the least (time, number) is next."""
    due = {number: (naps[number][0], 0) for number in range(len(naps)) if naps[number]}
    expected = []
    while due:
        number = min(due, key=lambda each: (due[each][0], each))
        at, nap = due.pop(number)
        expected.append((float(at), number))
        if nap + 1 < len(naps[number]):
            due[number] = at + naps[number][nap + 1], nap + 1
    assert slept(naps) == expected


@settings(max_examples=10, deadline=None)
@given(NAPS)
def test_how_long_code_really_takes_changes_nothing(naps: Naps) -> None:
    assert slept(naps, really=0.002) == slept(naps)


@given(NAPS, st.integers(0, 5), st.integers(0, 12))
def test_an_actor_that_raises_ends_the_run_with_its_error_and_leaves_no_thread(naps: Naps, who: int, at: int) -> None:
    time, started = VirtualTime(), list[Actor]()
    ended: list[int] = []

    def sleeper(number: int) -> None:
        try:
            for nap in naps[number]:
                time.sleep(nap)
            time.pause()
        finally:
            ended.append(number)

    def failing() -> None:
        time.sleep(at)
        raise KeyError("planted")

    for number in range(len(naps)):
        if number == who:
            started.append(time.start("failing", failing))
        started.append(time.start(f"sleeper {number}", lambda number=number: sleeper(number)))
    if who >= len(naps):
        started.append(time.start("failing", failing))
    with pytest.raises(KeyError, match="planted"):
        time.run()
    # Their own threads: those of other tests of this process end when they like.
    assert not any(actor.thread is not None and actor.thread.is_alive() for actor in started)
    # One that had not begun at that instant never does.
    assert sorted(ended) == (list(range(len(naps))) if at else [n for n in range(len(naps)) if n < who])


def test_a_run_ends_at_its_time_in_the_middle_of_what_actors_do() -> None:
    time, seen = VirtualTime(), []

    def ticking() -> None:
        while True:
            time.sleep(2)
            seen.append(time.now)

    time.start("ticking", ticking)
    time.run(until=7)
    assert (seen, time.now) == ([2, 4, 6], 7)


def test_actors_that_wait_for_each_other_are_named() -> None:
    time = VirtualTime()
    time.start("hen", time.pause)
    time.start("egg", lambda: (time.sleep(1), time.pause()))
    with pytest.raises(StuckError, match="at 1 s each of hen, egg waits"):
        time.run()


def test_a_pause_ends_at_its_time_or_when_another_wakes_it_and_never_twice() -> None:
    time, seen = VirtualTime(), []

    def patient() -> None:
        for until in (5.0, 9.0):
            time.pause(until)
            seen.append(time.now)
        time.sleep(10)
        seen.append(time.now)

    sleeper = time.start("patient", patient)

    def waking() -> None:
        time.sleep(3)
        time.wake(sleeper)
        time.wake(sleeper)
        time.sleep(8)  # it sleeps now: a wake does not end a sleep
        time.wake(sleeper)

    time.start("waking", waking)
    time.run()
    assert seen == [3, 9, 19]


def test_what_arrives_at_an_instant_is_there_before_anyone_acts() -> None:
    time, queue, seen = VirtualTime(), deque[str](), []

    def taking() -> None:
        time.sleep(4)
        seen.append(list(queue))

    def sending() -> None:
        time.sleep(1)
        time.after(3, lambda: queue.append("first"))
        time.after(3, lambda: queue.append("second"))

    time.start("taking", taking)
    time.start("sending", sending)
    time.run()
    assert seen == [["first", "second"]]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20), st.integers(1, 4))
def test_a_queue_of_waiting_actors_serves_each_item_once(items: list[tuple[int, int]], takers: int) -> None:
    """Producer and consumers over wake and pause: nothing is lost, and a fixed order comes out."""

    def served() -> list[tuple[float, int, int]]:
        time, queue, waiting, seen = VirtualTime(), deque[tuple[int, int]](), deque[Actor](), []

        def taking(number: int) -> None:
            while True:
                while not queue:
                    waiting.append(time.current)
                    time.pause()
                item, takes = queue.popleft()
                time.sleep(takes)
                seen.append((time.now, number, item))

        def sending() -> None:
            for number, (pause, takes) in enumerate(items):
                time.sleep(pause)
                queue.append((number, takes))
                if waiting:
                    time.wake(waiting.popleft())
            time.sleep(2000)  # else all would wait for each other in the end, which is an error

        for number in range(takers):
            time.start(f"taker {number}", lambda number=number: taking(number))
        time.start("sender", sending)
        time.run(until=1000)
        return seen

    found = served()
    assert sorted(item for _, _, item in found) == list(range(len(items)))
    assert found == served()


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused(seconds: float) -> None:
    time = VirtualTime()
    time.start("sleeper", lambda: time.sleep(seconds))
    with pytest.raises(ValueError, match="cannot be waited for"):
        time.run()
