from __future__ import annotations

from distrl.judge.truth import Confusion
from distrl.types import Outcome
from hypothesis import given
from hypothesis import strategies as st

S, F, U, I = Outcome.SUCCESS, Outcome.FAILURE, Outcome.UNKNOWN, Outcome.INTERRUPTED  # noqa: E741


def test_the_figures_of_a_judge() -> None:
    found = Confusion.of([(S, S)] * 6 + [(S, F)] * 2 + [(S, U)] * 1 + [(F, F)] * 9 + [(F, S)] * 3 + [(I, S)] * 5)
    assert (found.total, found.judged) == (21, 20)
    assert found.accuracy == 15 / 20
    assert found.precision == 6 / 9
    assert found.recall == 6 / 8
    assert found.discrepancy == (9 - 8) / 20


def test_without_a_verdict_there_is_no_figure() -> None:
    found = Confusion.of([(S, U), (F, U), (U, S)])
    assert (found.total, found.judged) == (2, 0)
    assert (found.accuracy, found.precision, found.recall, found.discrepancy) == (None, None, None, None)


@given(st.lists(st.tuples(st.sampled_from(list(Outcome)), st.sampled_from([S, F, U]))))
def test_shares_are_shares(pairs: list[tuple[Outcome, Outcome]]) -> None:
    found = Confusion.of(pairs)
    assert found.judged <= found.total <= len(pairs)
    for share in (found.accuracy, found.precision, found.recall):
        assert share is None or 0 <= share <= 1
    assert found.discrepancy is None or -1 <= found.discrepancy <= 1
