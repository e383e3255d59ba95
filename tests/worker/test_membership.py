"""When a worker is in the workers' group."""

from __future__ import annotations

from distrl.worker.membership import AWAY_S, UNASSIGNED_S, WARN_AGAIN_S, Membership
from hypothesis import given
from hypothesis import strategies as st

looks = st.lists(st.tuples(st.floats(0.01, 3.0), st.integers(0, 8)), min_size=1, max_size=60)


@given(looks)
def test_a_worker_takes_tasks_while_a_phone_answers_and_for_a_while_after_and_never_else(
    seen: list[tuple[float, int]],
) -> None:
    membership, now, answered = Membership(), 0.0, None
    for pause, answering in seen:
        now += pause
        wanted = membership.wanted(answering, now)
        answered = now if answering else answered
        if answering:
            assert wanted == answering
        else:
            assert (wanted > 0) == (answered is not None and now - answered < AWAY_S)


def test_a_member_without_a_partition_warns_once_it_lasts_and_seldom_again() -> None:
    membership = Membership()
    assert not membership.should_warn(0, False, 1.0), "it is not in the group"
    membership.wanted(2, 1.0)
    warned = [now for now in range(1, 150) if membership.should_warn(0, False, float(now))]
    assert warned == [1 + UNASSIGNED_S, 1 + UNASSIGNED_S + WARN_AGAIN_S, 1 + UNASSIGNED_S + 2 * WARN_AGAIN_S]
    assert not membership.should_warn(3, False, 300.0)
    assert not membership.should_warn(0, False, 301.0), "it has just lost them"
    assert membership.should_warn(0, False, 301.0 + UNASSIGNED_S)


def test_a_member_is_not_one_too_many_while_no_broker_answers() -> None:
    membership = Membership()
    membership.wanted(2, 1.0)
    assert not any(membership.should_warn(0, True, float(now)) for now in range(1, 100))
    warned = [now for now in range(100, 150) if membership.should_warn(0, False, float(now))]
    assert warned[:1] == [100 + UNASSIGNED_S], "the group has its time once they are back"
