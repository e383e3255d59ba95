from __future__ import annotations

import json
import random
import tracemalloc

from distrl.broker.duplicates import BLOCK, FirstWins, IdSet
from distrl.feeder.facts import next_retry
from hypothesis import given
from hypothesis import strategies as st

NUMBERED = st.builds(
    lambda p, n, w, s: f"{p}{n:0{w}d}{s}",
    st.sampled_from(["", "a", "a1-", "b\n", "1.r2"]),
    st.integers(0, 12) | st.integers(BLOCK - 2, BLOCK + 2) | st.integers(0, 10**18 - 1),
    st.integers(1, 3),
    st.sampled_from(["", "", ".r1", ".r2", ".r10", ".r0", ".r01", ".r", ".r1.r1", ".r1\n", ".e2", ".e2.r1", ".r1.e2"]),
)
IDS = st.lists(
    st.one_of(
        NUMBERED,
        st.text(max_size=30),
        st.text("0123456789", max_size=40),
        st.sampled_from(["a", "b", "1", "1\n", "01", "1\n1", ".r1", "a.r1", "1.r1", "01.r1", "1.r11", "1٣.r1"]),
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
    restarted = FirstWins(seen=IdSet.of(json.loads(json.dumps(IdSet(before).to_json()))))
    assert [whole.admits(i) for i in after] == [restarted.admits(i) for i in after]


@given(IDS, IDS)
def test_an_id_set_is_a_set(ids: list[str], others: list[str]) -> None:
    found = IdSet(ids)
    assert len(found) == len(set(ids))
    assert set(found) == set(ids)
    assert [each in found for each in others] == [each in set(ids) for each in others]


@given(IDS, st.randoms(use_true_random=False))
def test_it_is_the_same_in_whatever_order_it_was_filled(ids: list[str], rule: random.Random) -> None:
    mixed = rule.sample(ids, len(ids))
    restored = IdSet.of(IdSet(mixed[: len(mixed) // 2]).to_json())
    for each in mixed:
        restored.add(each)
    assert restored.to_json() == IdSet(ids).to_json()
    assert list(restored) == list(IdSet(ids))


@given(IDS)
def test_what_is_saved_is_the_set_and_counts_as_it(ids: list[str]) -> None:
    found = IdSet.of(json.loads(json.dumps(IdSet(ids).to_json())))
    assert (set(found), len(found)) == (set(ids), len(set(ids)))


def test_numbers_in_a_row_are_one_range() -> None:
    ids = [f"{width}-{n:0{width}d}{retry}" for retry in ("", ".r1") for width in (1, 3) for n in (0, 1, 2, 5)]
    expected = [("1-0", "1-2"), ("1-5", "1-5"), ("1-0.r1", "1-2.r1"), ("1-5.r1", "1-5.r1")]
    expected += [("3-000", "3-002"), ("3-005", "3-005"), ("3-000.r1", "3-002.r1"), ("3-005.r1", "3-005.r1")]
    assert list(IdSet(ids).ranges()) == expected
    across = IdSet(f"x{n:05d}" for n in range(3 * BLOCK))
    assert list(across.ranges()) == [("x00000", f"x{3 * BLOCK - 1:05d}")]


def test_a_run_of_months_takes_a_few_bytes() -> None:
    ids = IdSet(f"home-train-0-{n:06d}" for n in range(1_200_000))
    assert len(ids) == 1_200_000
    assert len(json.dumps(ids.to_json())) < 1000


def test_ids_of_retried_tasks_take_few_bytes_wherever_they_lie() -> None:
    """A hundredth of 10^7 tasks, of which 5 % are fed again; `bench/scale.py ids` measures them all."""
    rule = random.Random(0)
    tracemalloc.start()
    try:
        ids = IdSet()
        for number in range(100_000):
            first = f"distrl.demo.trajectories/home-train-0-{number:06d}"
            ids.add(first)
            if rule.random() < 0.05:
                ids.add(str(next_retry(first, 3)))
        memory, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ids) > 104_000
    assert memory < 50e6 / 100
    assert len(json.dumps(ids.to_json())) < 5e6 / 100


def test_what_older_checkpoints_hold_is_read() -> None:
    saved = {"a": {"0": [[0, 0]]}, "t/x-": {"2": [[0, 3], [7, 7]], "6": [[0, 2 * BLOCK]]}, "t/x-03.r": {"1": [[1, 2]]}}
    ids = IdSet.of(saved)
    few = {"a", "t/x-00", "t/x-01", "t/x-02", "t/x-03", "t/x-07", "t/x-03.r1", "t/x-03.r2"}
    assert set(ids) == few | {f"t/x-{n:06d}" for n in range(2 * BLOCK + 1)}
    assert ids.to_json() == IdSet(sorted(ids, reverse=True)).to_json()


def test_a_reader_leaves_the_set_that_it_was_given_alone() -> None:
    seen = IdSet(["task-1"])
    FirstWins(seen).admits("task-2")
    assert list(seen) == ["task-1"]
