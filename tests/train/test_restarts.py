"""When a role is started again: pauses grow, a role that once worked is never given up, one that never starts is."""

from __future__ import annotations

from distrl.train.restarts import PAUSES_S, SOON_S, TRIES, Restarts
from hypothesis import given
from hypothesis import strategies as st


def test_a_role_that_never_starts_is_given_up_after_so_many_tries() -> None:
    restarts = Restarts()
    pauses = [restarts.after(0.5) for _ in range(TRIES)]
    assert pauses == [*PAUSES_S[: TRIES - 1], None]
    assert restarts.count == TRIES - 1


def test_the_first_end_after_a_long_life_costs_the_shortest_pause() -> None:
    restarts = Restarts()
    for _ in range(TRIES - 1):
        restarts.after(1.0)
    assert restarts.after(SOON_S) == PAUSES_S[0]
    assert restarts.after(1.0) == PAUSES_S[0]
    assert restarts.after(1.0) == PAUSES_S[1]


@given(st.lists(st.floats(0, 10 * SOON_S), max_size=60))
def test_a_role_that_has_worked_once_is_never_given_up(lives: list[float]) -> None:
    restarts = Restarts()
    assert restarts.after(SOON_S) is not None
    pauses = [restarts.after(lived) for lived in lives]
    assert all(pause in PAUSES_S for pause in pauses)
    assert restarts.count == len(lives) + 1
