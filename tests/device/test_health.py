from __future__ import annotations

from distrl.device.health import QUARANTINE_MAX_S, Health, quarantine_s
from hypothesis import given
from hypothesis import strategies as st


def test_the_first_failure_is_recovered_at_once_and_each_further_one_waits_twice_as_long() -> None:
    assert [quarantine_s(failures) for failures in range(1, 9)] == [0, 1, 2, 4, 8, 16, 32, 60]


@given(st.integers(0, 10**6))
def test_the_wait_grows_and_is_bounded(failures: int) -> None:
    assert 0 <= quarantine_s(failures) <= quarantine_s(failures + 1) <= QUARANTINE_MAX_S


def test_one_success_forgets_every_failure() -> None:
    health = Health()
    for _ in range(5):
        health = health.failed(now=100.0)
    assert health == Health(failures=5, due=108.0, connected=False)
    assert health.succeeded() == Health(connected=True)


def test_a_new_connection_alone_forgets_no_failure() -> None:
    failed = Health().failed(now=100.0)
    assert failed.recovered() == Health(failures=1, due=100.0, connected=True)
    assert failed.recovered().failed(now=100.0).due == 101.0
