from __future__ import annotations

from distrl.broker.identity import FirstWins
from hypothesis import given
from hypothesis import strategies as st

IDS = st.lists(st.sampled_from("abcdef"))


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
    restarted = FirstWins(seen=before)
    assert [whole.admits(i) for i in after] == [restarted.admits(i) for i in after]
