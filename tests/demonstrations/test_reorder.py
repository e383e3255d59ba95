from __future__ import annotations

import threading

import pytest
from distrl.demonstrations.reorder import InOrder
from hypothesis import given
from hypothesis import strategies as st


@given(st.permutations(range(8)))
def test_items_leave_in_their_order_as_soon_as_none_before_them_is_awaited(arrival: list[int]) -> None:
    left: list[int] = []
    queue = InOrder[int](map(str, range(8)), left.append)
    come: set[int] = set()
    for number in arrival:
        queue.put(str(number), number)
        come.add(number)
        reached = next((each for each in range(8) if each not in come), 8)
        assert left == list(range(reached))


def test_many_threads_at_once_change_no_order() -> None:
    left: list[int] = []
    queue = InOrder[int](map(str, range(400)), left.append)
    begin = threading.Barrier(8)

    def bring(first: int) -> None:
        begin.wait()
        for number in reversed(range(first, 400, 8)):
            queue.put(str(number), number)

    threads = [threading.Thread(target=bring, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert left == list(range(400))


def test_what_could_not_be_given_is_reported_to_who_brought_it_and_nothing_later_passes_it() -> None:
    left: list[int] = []

    def give(item: int) -> None:
        if item == 1:
            raise OSError("away")
        left.append(item)

    queue = InOrder[int](["0", "1", "2"], give)
    queue.put("2", 2)
    queue.put("0", 0)
    with pytest.raises(OSError, match="away"):
        queue.put("1", 1)
    assert left == [0]
