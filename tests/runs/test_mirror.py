"""Which records of a copy are written in a transaction, so that offsets stay what they were."""

from __future__ import annotations

import pytest
from distrl.broker.reader import RawRecord
from distrl.errors import BrokerError
from distrl.runs.mirror import MOST, segments
from distrl.types import LogPosition
from hypothesis import given
from hypothesis import strategies as st


def raw(offset: int) -> RawRecord:
    return RawRecord(LogPosition("t", 0, offset), b"k", b"v", 1)


def written(found: list[tuple[int, bool]], first: int) -> tuple[list[int], int]:
    """The offsets that a broker gives to segments of (records, is_marked), and the end of the partition."""
    offsets, following = [], first
    for count, is_marked in found:
        offsets += range(following, following + count)
        following += count + is_marked
    return offsets, following


@given(st.lists(st.tuples(st.integers(1, 2 * MOST), st.booleans()), min_size=1, max_size=5), st.integers(0, 10**6))
def test_what_is_written_has_the_offsets_that_it_had(runs: list[tuple[int, bool]], first: int) -> None:
    offsets, end = written(runs, first)
    found = segments(map(raw, offsets), end)
    assert [each.position.offset for segment in found for each in segment.records] == offsets
    assert written([(len(segment.records), segment.is_marked) for segment in found], first) == (offsets, end)
    assert all(0 < len(segment.records) <= MOST for segment in found)


def test_while_records_may_follow_nothing_is_said_of_the_offset_behind_the_last() -> None:
    (whole, open_) = segments(map(raw, (4, 5, 7)), None)
    assert (len(whole.records), whole.is_marked) == (2, True)
    assert (len(open_.records), open_.is_marked) == (1, False)
    assert segments([], 9) == []


def test_a_hole_that_no_marker_explains_is_refused() -> None:
    with pytest.raises(BrokerError, match="has 2 offsets without a record from 5 on"):
        segments(map(raw, (4, 7)), 8)
    with pytest.raises(BrokerError, match="has 3 offsets without a record from 8 on"):
        segments(map(raw, (7,)), 11)
