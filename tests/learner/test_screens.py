"""Screenshots are fetched side by side, within a bound, and are what the store has, whatever is asked in what order."""

from __future__ import annotations

import hashlib
import threading

import pytest
from distrl.errors import StoreError
from distrl.learner.screens import Screens
from distrl.store.objects import MissingObjectError, missing
from distrl.types import ObjectRef
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

PATIENCE_S = 30.0


def ref(number: int, size: int = 10) -> ObjectRef:
    name = hashlib.sha256(b"%d" % number).hexdigest()
    return ObjectRef(f"screenshots/{name}.png", name, size)


def content(each: ObjectRef) -> bytes:
    return each.sha256.encode()


class Store:
    """Counts what is fetched; a request waits until `free`."""

    def __init__(self, *, free: bool = True) -> None:
        self.fetched: list[ObjectRef] = []
        self.free = threading.Event()
        self.begun = threading.Semaphore(0)
        if free:
            self.free.set()

    def get(self, each: ObjectRef) -> bytes:
        self.fetched.append(each)
        self.begun.release()
        assert self.free.wait(PATIENCE_S)
        return content(each)

    def wait_until_begun(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=PATIENCE_S)


def test_what_is_wanted_is_fetched_side_by_side_while_the_caller_goes_on() -> None:
    met = threading.Barrier(4)

    def get(each: ObjectRef) -> bytes:
        met.wait(PATIENCE_S)  # breaks where fewer than four are fetched at once
        return content(each)

    screens, four = Screens(get, at_once=4), [ref(n) for n in range(4)]
    screens.want(four)
    assert [screens(each) for each in four] == [content(each) for each in four]


def test_no_more_is_fetched_ahead_than_the_bound_allows_and_room_is_used_again() -> None:
    store = Store(free=False)
    screens = Screens(store.get, at_once=8, most_bytes=25)
    screens.want([ref(n) for n in range(5)])
    store.wait_until_begun(2)
    assert not store.begun.acquire(blocking=False)
    store.free.set()
    assert screens(ref(0)) == content(ref(0))
    store.wait_until_begun(1)
    assert store.fetched[:2] == [ref(0), ref(1)] or store.fetched[:2] == [ref(1), ref(0)]
    assert store.fetched[2:] == [ref(2)]
    screens.keep([ref(4)])  # so 1, 2 and 3 leave room for it
    store.wait_until_begun(1)
    assert store.fetched[3:] == [ref(4)]


def test_what_is_larger_than_the_bound_is_fetched_when_it_is_asked_for() -> None:
    store = Store()
    screens = Screens(store.get, most_bytes=25)
    screens.want([ref(0, size=26), ref(1)])
    store.wait_until_begun(1)
    assert store.fetched == [ref(1)]
    assert screens(ref(0, size=26)) == content(ref(0))


def test_what_nobody_wanted_is_fetched_when_it_is_asked_for() -> None:
    assert Screens(Store().get)(ref(3)) == content(ref(3))


class Away(Store):
    """A store that fails for as long as it is away."""

    away = True

    def get(self, each: ObjectRef) -> bytes:
        if self.away:
            raise missing(each.key, "the store")
        return super().get(each)


def test_what_failed_while_the_store_was_away_is_no_error_once_it_is_back() -> None:
    """Each error costs the fold a pause of seconds, and hundreds of requests may have failed ahead."""
    store, some = Away(), [ref(n) for n in range(40)]
    screens = Screens(store.get, at_once=4)
    screens.want(some)
    until(lambda: len(screens.arrived(40)) == 40)
    store.away = False
    assert [screens(each) for each in some] == [content(each) for each in some]


def test_what_failed_and_is_wanted_again_is_fetched_side_by_side() -> None:
    store, some = Away(), [ref(n) for n in range(8)]
    screens = Screens(store.get, at_once=4)
    screens.want(some)
    until(lambda: len(screens.arrived(8)) == 8)
    store.away = False
    screens.want(some)
    until(lambda: len(screens.arrived(8)) == 8)
    assert sorted(store.fetched, key=some.index) == some


def test_a_request_that_fails_when_it_is_asked_for_is_an_error() -> None:
    store = Away()
    screens = Screens(store.get)
    with pytest.raises(MissingObjectError):
        screens(ref(0))
    store.away = False
    assert screens(ref(0)) == content(ref(0))


def test_references_of_one_image_with_other_sizes_are_other_requests() -> None:
    """A record is untrusted: a wrong size fails, and must not fail who names the right one."""

    def get(each: ObjectRef) -> bytes:
        if each.size != 10:
            raise StoreError("object", "has another size", "")
        return content(each)

    screens = Screens(get)
    screens.want([ref(0, size=11), ref(0)])
    assert screens(ref(0)) == content(ref(0))
    with pytest.raises(StoreError):
        screens(ref(0, size=11))


def test_those_that_have_arrived_come_in_the_order_they_were_wanted_in() -> None:
    screens, five = Screens(Store().get), [ref(n) for n in range(5)]
    screens.want(five)
    until(lambda: len(screens.arrived(5)) == 5)
    assert screens.arrived(5) == five
    assert screens.arrived(2) == five[:2]
    screens.forget(five[:1])
    assert screens.arrived(2) == five[1:3]


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(("want", "ask", "forget", "keep")), st.integers(0, 6), st.integers(0, 30)), max_size=40
)


@given(OPERATIONS)
def test_whatever_is_asked_in_what_order_it_is_what_the_store_has_and_the_bound_holds(
    operations: list[tuple[str, int, int]],
) -> None:
    screens = Screens(Store().get, at_once=2, most_bytes=40)
    for operation, number, size in operations:
        each = ref(number, size)
        match operation:
            case "want":
                screens.want([each])
            case "ask":
                assert screens(each) == content(each)
            case "forget":
                screens.forget([each])
            case _:
                screens.keep([each])
        assert screens._bytes == sum(coming.size for coming in screens._coming) <= 40
    screens.keep(())
    assert screens._bytes == 0
    screens.close()
