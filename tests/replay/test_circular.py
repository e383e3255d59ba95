from __future__ import annotations

import factories
import numpy as np
import pytest
from distrl.errors import ConfigError, StoreError
from distrl.replay.circular import CircularBuffer, Entry, OtherRecordError, Rows
from distrl.types import LoggedTrajectory, LogPosition
from hypothesis import given
from hypothesis import strategies as st

COLUMNS = ("td", "advantage", "other")


def record(offset: int, steps: int, logprob: float = -1.0) -> LoggedTrajectory:
    made = factories.trajectory(f"t{offset}", (factories.step(logprob=logprob - i / 8, at=i) for i in range(steps)))
    return LoggedTrajectory(LogPosition("trajectories", 0, offset), made)


def filled(capacity: int, lengths: list[int]) -> CircularBuffer:
    buffer = CircularBuffer(capacity, COLUMNS)
    for offset, length in enumerate(lengths):
        entry = buffer.add(record(offset, length))
        for index, name in enumerate(COLUMNS):
            buffer.columns[name][buffer.slots(entry)] = offset + index / 10 + np.arange(length) / 100
    return buffer


lengths = st.lists(st.integers(1, 9), max_size=40)
capacities = st.integers(9, 40)


@given(capacities, lengths)
def test_it_holds_exactly_the_newest_trajectories_that_fit(capacity: int, steps: list[int]) -> None:
    buffer = filled(capacity, steps)
    fit = 0
    while fit < len(steps) and sum(steps[len(steps) - fit - 1 :]) <= capacity:
        fit += 1
    assert [entry.logged.position.offset for entry in buffer.entries] == list(range(len(steps) - fit, len(steps)))
    assert len(buffer) == sum(steps[len(steps) - fit :]) <= capacity
    assert buffer.written == sum(steps)


@given(capacities, lengths)
def test_no_slot_belongs_to_two_and_each_keeps_what_was_computed_for_it(capacity: int, steps: list[int]) -> None:
    buffer = filled(capacity, steps)
    live = buffer.live()
    assert len(set(live.tolist())) == len(live) == len(buffer)
    for entry in buffer.entries:
        expected = entry.logged.position.offset + np.arange(len(entry)) / 100
        assert buffer.columns["td"][buffer.slots(entry)] == pytest.approx(expected)


@given(capacities, lengths, st.data())
def test_the_layout_is_that_of_each_entry_after_each_trajectory_and_after_a_refill(
    capacity: int, steps: list[int], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(steps)))
    buffer, log = filled(capacity, steps[:cut]), [record(offset, length) for offset, length in enumerate(steps)]
    for item in log[cut:]:
        assert_laid_out(buffer)
        buffer.add(item)
    assert_laid_out(buffer)
    other = filled(capacity, [1, 2])
    assert_laid_out(other)
    other.refill(buffer.bounds(), log, buffer.columns)
    assert_laid_out(other)


def assert_laid_out(buffer: CircularBuffer) -> None:
    layout, each = buffer.layout, [len(entry) for entry in buffer.entries]
    assert layout.lengths.tolist() == each
    assert layout.begins.tolist() == [sum(each[:number]) for number in range(len(each))]
    assert layout.owner.tolist() == [number for number, length in enumerate(each) for _ in range(length)]
    assert layout.slots.tolist() == [slot for entry in buffer.entries for slot in buffer.slots(entry).tolist()]
    assert buffer.logprobs[layout.slots].tolist() == [step.logprob for entry in buffer.entries for step in entry.steps]
    for column in (buffer.columns["td"], buffer.logprobs, np.arange(2 * buffer.capacity).reshape(-1, 2)):
        assert np.array_equal(layout.of(column), column[layout.slots])
    assert_rows(Rows(layout, layout.owner[::-1], (np.arange(len(buffer)) - layout.begins[layout.owner])[::-1]), buffer)


def assert_rows(rows: Rows, buffer: CircularBuffer) -> None:
    """rows: all steps, the last one first."""
    pairs = [(entry, step) for entry in buffer.entries for step in range(len(entry))][::-1]
    assert list(rows) == pairs
    assert list(rows[1:3]) == pairs[1:3]
    assert [rows[place] for place in range(len(rows))] == pairs
    assert rows.slots.tolist() == [buffer.slots(entry)[step] for entry, step in pairs]
    assert rows.last.tolist() == [step == len(entry) - 1 for entry, step in pairs]


def test_nobody_changes_the_layout_for_all_others() -> None:
    with pytest.raises(ValueError, match="read-only"):
        filled(9, [2, 3]).layout.slots[0] = 5


def test_slots_go_round() -> None:
    buffer = filled(5, [3, 4])
    (entry,) = buffer.entries
    assert buffer.slots(entry).tolist() == [3, 4, 0, 1]


def test_a_trajectory_leaves_whole_when_its_first_step_is_overwritten_and_no_sooner() -> None:
    buffer = filled(10, [4, 4])
    buffer.add(record(2, 2))
    assert len(buffer.entries) == 3
    buffer.add(record(3, 1))
    assert [entry.logged.position.offset for entry in buffer.entries] == [1, 2, 3]
    assert len(buffer) == 7


@given(capacities, lengths, st.data())
def test_rebuilt_from_bounds_and_log_it_is_the_same_and_goes_on_the_same(
    capacity: int, steps: list[int], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(steps)))
    whole, half = filled(capacity, steps), filled(capacity, steps[:cut])
    log = [record(offset, length) for offset, length in enumerate(steps)]
    again = CircularBuffer(capacity, COLUMNS)
    again.refill(half.bounds(), log[::-1], half.columns)
    assert again.digest() == half.digest()
    for item in log[cut:]:
        entry: Entry = again.add(item)
        for index, name in enumerate(COLUMNS):
            again.columns[name][again.slots(entry)] = item.position.offset + index / 10 + np.arange(len(entry)) / 100
    assert again.digest() == whole.digest()


def test_digest_sees_the_records_the_places_and_what_was_computed() -> None:
    one = filled(10, [2, 3])
    digests = {one.digest(), filled(10, [3, 2]).digest(), filled(11, [2, 3]).digest()}
    one.columns["advantage"][1] += 1e-12
    digests.add(one.digest())
    other = CircularBuffer(10)
    other.add(record(0, 2, logprob=-1.0000001))
    same = CircularBuffer(10)
    same.add(record(0, 2))
    assert len(digests) == 4
    assert other.digest() != same.digest()


def test_digest_does_not_see_what_is_gone() -> None:
    one, two = filled(4, [3, 3]), filled(4, [3, 3])
    gone = set(range(4)) - set(one.live().tolist())
    one.columns["td"][list(gone)] = 99.0
    assert gone
    assert one.digest() == two.digest()


def test_a_trajectory_that_cannot_fit_is_refused_with_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"replay\.capacity"):
        CircularBuffer(3).add(record(0, 4))
    with pytest.raises(ValueError, match="no steps"):
        CircularBuffer(3).add(record(0, 0))


def test_a_log_that_has_lost_a_record_is_refused() -> None:
    buffer = filled(10, [2, 3])
    with pytest.raises(StoreError, match="trajectories 0:1"):
        CircularBuffer(10, COLUMNS).refill(buffer.bounds(), [record(0, 2)], buffer.columns)
    for length in (1, 4, 25):  # of which the last would not even fit
        with pytest.raises(OtherRecordError, match="trajectories 0:1"):
            CircularBuffer(10, COLUMNS).refill(buffer.bounds(), [record(0, 2), record(1, length)], buffer.columns)
    with pytest.raises(StoreError, match="a buffer of 10 transitions"):
        CircularBuffer(9, COLUMNS).refill(buffer.bounds(), [record(0, 2), record(1, 3)], buffer.columns)
