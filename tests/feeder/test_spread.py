"""Which partition each further task goes to."""

from __future__ import annotations

from collections import Counter

from distrl.feeder.spread import Owner, owners_of, spread
from hypothesis import given
from hypothesis import strategies as st

EIGHT = range(8)


@given(st.dictionaries(st.integers(0, 7), st.integers(0, 20)), st.integers(1, 8), st.integers(0, 60))
def test_further_tasks_level_the_partitions_of_nobody(loads: dict[int, int], partitions: int, count: int) -> None:
    after = Counter({partition: load for partition, load in loads.items() if partition < partitions})
    chosen = spread(loads, owners_of(partitions, ()), count)
    after.update(chosen)
    assert len(chosen) == count
    for partition in set(chosen):
        assert after[partition] <= 1 + min(after[other] for other in range(partitions))


@given(st.dictionaries(st.integers(0, 7), st.integers(0, 20)), st.integers(1, 8), st.integers(0, 60))
def test_without_owners_each_goes_to_the_lowest_of_the_least_loaded_partitions(
    loads: dict[int, int], partitions: int, count: int
) -> None:
    loaded = [loads.get(partition, 0) for partition in range(partitions)]
    for chosen in spread(loads, owners_of(partitions, ()), count):
        assert chosen == min(range(partitions), key=loaded.__getitem__)
        loaded[chosen] += 1


def of_each(chosen: list[int], owners: list[Owner]) -> list[int]:
    """How many tasks each worker gets."""
    whose = {at: number for number, owner in enumerate(owners) for at in owner.partitions}
    found = Counter(whose.get(at) for at in chosen)
    return [found[number] for number in range(len(owners))]


def test_two_workers_of_four_phones_get_as_many_tasks_whichever_partitions_are_lowest() -> None:
    """24 tasks on 16 partitions: spread over partitions alone, the first eight have two each, and the others one."""
    owners = [Owner(tuple(range(8)), 4), Owner(tuple(range(8, 16)), 4)]
    assert of_each(spread({}, owners_of(16, ()), 24), owners) == [16, 8]
    assert of_each(spread({}, owners_of(16, owners), 24), owners) == [12, 12]


def test_a_worker_gets_tasks_by_its_phones_and_one_without_any_gets_none() -> None:
    owners = [Owner((0, 1), 1), Owner((2, 3), 6), Owner((4, 5), 0), Owner((6, 7), 2)]
    assert of_each(spread({}, owners_of(8, owners), 27), owners) == [3, 18, 0, 6]
    assert spread({}, owners_of(2, [Owner((0,), 0), Owner((1,), 0)]), 3) == [0, 1, 0], (
        "where none answers, all are equal"
    )


def test_a_small_worker_has_a_task_before_a_large_one_has_two_for_each_phone() -> None:
    owners = [Owner((0,), 64), Owner((1,), 1)]
    assert of_each(spread({}, owners_of(2, owners), 24), owners) == [23, 1]
    assert of_each(spread({}, owners_of(2, owners), 130), owners) == [128, 2]


def test_where_no_phone_answers_all_partitions_are_equal() -> None:
    assert owners_of(4, [Owner((0,), 0)]) == [Owner((0, 1, 2, 3), 4)]


def test_partitions_of_nobody_count_as_those_of_a_worker_with_as_many_phones_for_each() -> None:
    chosen = Counter(spread({}, owners_of(4, [Owner((0,), 3), Owner((1,), 3)]), 24))
    assert chosen == {0: 6, 1: 6, 2: 6, 3: 6}


def test_a_partition_that_is_not_there_is_skipped() -> None:
    """A heartbeat may name one that the feeder does not know yet, and, as it is untrusted, any other number."""
    assert owners_of(1, [Owner((7,), 4), Owner((0, 9), 1)]) == [Owner((0,), 1)]
    assert owners_of(2, [Owner((-2, 0), 1)]) == [Owner((0,), 1), Owner((1,), 1)]


@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
    st.lists(st.integers(1, 9), min_size=4, max_size=4),
    st.dictionaries(st.integers(0, 7), st.integers(0, 9)),
    st.integers(0, 60),
)
def test_each_goes_where_fewest_are_before_it_for_each_phone(
    whose: list[int], phones: list[int], loads: dict[int, int], count: int
) -> None:
    owners = [Owner(tuple(at for at in EIGHT if whose[at] == one), phones[one]) for one in sorted(set(whose))]
    after = Counter(loads)

    def waits(owner: Owner) -> tuple[float, int, int]:
        held = sum(after[at] for at in owner.partitions)
        return held / owner.phones, held, owner.partitions[0]

    for chosen in spread(loads, owners_of(8, owners), count):
        assert chosen == min(min(owners, key=waits).partitions, key=lambda at: (after[at], at))
        after[chosen] += 1
