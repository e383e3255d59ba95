from __future__ import annotations

import json

from distrl.broker.duplicates import FirstWins, IdSet
from hypothesis import given
from hypothesis import strategies as st

NUMBERED = st.builds(
    lambda p, n, w: f"{p}{n:0{w}d}", st.sampled_from(["", "a", "a1-", "b\n"]), st.integers(0, 12), st.integers(1, 3)
)
IDS = st.lists(
    st.one_of(
        NUMBERED,
        st.text(max_size=30),
        st.text("0123456789", max_size=40),
        st.sampled_from(["a", "b", "1", "1\n", "01", "1\n1"]),
    )
)


@given(IDS)
def test_the_first_of_each_id_is_admitted_and_the_others_are_counted(ids: list[str]) -> None:
    first = FirstWins()
    admitted = [i for i, record_id in enumerate(ids) if first.admits(record_id)]
    assert admitted == [i for i, record_id in enumerate(ids) if record_id not in ids[:i]]
    assert first.duplicates == len(ids) - len(set(ids))


@given(IDS, IDS)
def test_a_reader_that_restarts_with_what_was_seen_admits_the_same(before: list[str], after: list[str]) -> None:
    whole = FirstWins()
    for record_id in before:
        whole.admits(record_id)
    restarted = FirstWins(seen=IdSet.of(json.loads(json.dumps(IdSet(before).ranges()))))
    assert [whole.admits(i) for i in after] == [restarted.admits(i) for i in after]


@given(IDS, IDS)
def test_an_id_set_is_a_set(ids: list[str], others: list[str]) -> None:
    found = IdSet(ids)
    assert len(found) == len(set(ids))
    assert set(found) == set(ids)
    assert [each in found for each in others] == [each in set(ids) for each in others]


@given(st.permutations([f"{width}-{n:0{width}d}" for width in (1, 3) for n in range(6)]))
def test_it_is_the_same_in_whatever_order_it_was_filled(ids: list[str]) -> None:
    assert IdSet(ids).ranges() == {"1-": {"1": [[0, 5]]}, "3-": {"3": [[0, 5]]}}


def test_a_run_of_months_takes_a_few_bytes() -> None:
    ids = IdSet(f"home-train-0-{n:06d}" for n in range(1_200_000))
    assert len(ids) == 1_200_000
    assert len(json.dumps(ids.ranges())) < 100


def test_a_reader_leaves_the_set_that_it_was_given_alone() -> None:
    seen = IdSet(["task-1"])
    FirstWins(seen).admits("task-2")
    assert list(seen) == ["task-1"]
