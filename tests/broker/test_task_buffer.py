"""The order in which tasks that were read are begun."""

from __future__ import annotations

from collections import defaultdict

import pytest
from distrl.broker.reader import RawRecord
from distrl.broker.task_buffer import TaskBuffer
from distrl.types import LogPosition
from hypothesis import given
from hypothesis import strategies as st


def raw(partition: int, offset: int, timestamp: int) -> RawRecord:
    return RawRecord(LogPosition("tasks", partition, offset), None, b"", timestamp)


def drained(buffer: TaskBuffer) -> list[RawRecord]:
    return [buffer.pop() for _ in range(len(buffer))]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20))))
def test_the_oldest_comes_first_whatever_the_order_of_a_fetch(written: list[tuple[int, int]]) -> None:
    log = defaultdict[int, list[RawRecord]](list)
    for partition, at in sorted(written, key=lambda each: each[1]):
        log[partition].append(raw(partition, len(log[partition]), at))
    buffer = TaskBuffer()
    for partition in log:
        for record in log[partition]:
            buffer.add(record)
    begun = drained(buffer)
    assert [record.timestamp for record in begun] == sorted(at for _, at in written)
    for partition, records in log.items():
        assert [record for record in begun if record.position.partition == partition] == records


def test_a_partition_keeps_its_order_though_its_times_do_not_rise() -> None:
    """A topic whose records have their producer's times; what is read out of order would never be begun."""
    buffer = TaskBuffer()
    for offset, at in enumerate((9, 1, 5)):
        buffer.add(raw(0, offset, at))
    buffer.add(raw(1, 0, 4))
    assert [(each.position.partition, each.position.offset) for each in drained(buffer)] == [
        (1, 0),
        (0, 0),
        (0, 1),
        (0, 2),
    ]
    with pytest.raises(IndexError):
        buffer.pop()


def test_what_another_worker_has_now_is_dropped() -> None:
    buffer = TaskBuffer()
    for partition in range(3):
        buffer.add(raw(partition, 0, partition))
    buffer.drop({0, 7})
    assert len(buffer) == 2
    assert buffer.pop().position.partition == 1
    buffer.clear()
    assert len(buffer) == 0
