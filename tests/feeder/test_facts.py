"""What a feeder knows may be saved at any time and gone on with: it is as if the log had been read from its start."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import factories
import pytest
from distrl.broker.duplicates import IdSet
from distrl.broker.packed_state import pack, unpack
from distrl.errors import WireError
from distrl.feeder.facts import TaskFacts
from distrl.feeder.outstanding import Outstanding
from distrl.feeder.state import FeederState
from distrl.types import LogPosition, Outcome, Skipped, Task, Update, Watermark
from hypothesis import given, settings
from hypothesis import strategies as st

from .test_admission import TOPIC, ledger_of, played, task_at, version
from .test_state import WIDE

See = Callable[[TaskFacts], object]
"""One record, or one look at the workers' offsets."""

FAMILIES = ("family-0", "family-1", "family-2")
small = st.integers(0, 9)
ids = st.builds(lambda number, retry: task_at(number).task_id + retry, st.integers(0, 40), st.sampled_from(["", ".r1"]))


def a_task(task_id: str, number: int) -> Task:
    return replace(task_at(number), task_id=task_id, fed_version=number)


def at(task_id: str, partition: int, offset: int) -> See:
    return lambda facts: facts.see_task(a_task(task_id, partition), LogPosition("tasks", partition, offset))


def ended(task_id: str, offset: int, outcome: Outcome, oldest: int) -> See:
    return lambda facts: facts.see_trajectory(offset, played(a_task(task_id, oldest), outcome, oldest, oldest + 1))


def journalled(u: int, offset: int, void: bool) -> See:
    """A void line leaves out the record at its watermark, too."""
    skipped = (Skipped(TOPIC, 0, offset, hashlib.sha256(b"").hexdigest(), "gone"),) if void else ()
    update = Update(u, (Watermark(TOPIC, 0, offset),), "f", 0, void="lost" if void else "", skipped=skipped)
    return lambda facts: facts.see_update(update, TOPIC)


records: st.SearchStrategy[See] = st.one_of(
    st.builds(at, ids, st.integers(0, 3), small),
    st.builds(ended, ids, st.integers(0, 60), st.sampled_from(Outcome), small),
    st.builds(lambda task_id: lambda facts: facts.see_unreadable(task_id), ids),
    st.builds(lambda number: lambda facts: facts.see_version(version(number, number)), small),
    st.builds(journalled, small, st.integers(0, 60), st.booleans()),
    st.builds(lambda offsets: lambda facts: facts.see_committed(offsets), st.dictionaries(st.integers(0, 3), small)),
    st.builds(lambda offsets: lambda facts: facts.see_deleted(offsets), st.dictionaries(st.integers(0, 3), small)),
)


def reloaded(facts: TaskFacts) -> TaskFacts:
    return unpack(pack(facts), TaskFacts, 10_000)


@settings(max_examples=300)
@given(st.lists(records, max_size=60), st.data())
def test_who_goes_on_from_a_snapshot_knows_what_one_that_reads_all_knows(log: list[See], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log)))
    whole, resumed = TaskFacts(3), TaskFacts(3)
    for see in log:
        see(whole)
    for see in log[:cut]:
        see(resumed)
    resumed = reloaded(resumed)
    for see in log[cut:]:
        see(resumed)
    assert pack(resumed) == pack(whole)
    whole.see_version(version(99, 99))
    resumed.see_version(version(99, 99))
    one, other = (FeederState(FAMILIES, task_at, WIDE, facts) for facts in (whole, resumed))
    assert one.due(7) == other.due(7)


def fed_and_saved(count: int) -> TaskFacts:
    """After `count` tasks were fed and read back."""
    state = ledger_of(WIDE)
    state.facts.see_version(version(0, 4))
    while len(state.facts.fed) < count:
        for offset, task in enumerate(state.due(7)):
            state.facts.see_trajectory(10_000 + offset, played(task, Outcome.INTERRUPTED))
            state.facts.interrupted.clear()
    return reloaded(state.facts)


def test_tasks_that_were_fed_are_not_looked_through_again() -> None:
    facts, asked = fed_and_saved(300), list[int]()

    def noted(index: int) -> Task:
        asked.append(index)
        return task_at(index)

    state = FeederState(FAMILIES, noted, WIDE, facts)
    assert [task.task_id for task in state.due(7)] == [f"t-{n}" for n in range(300, 312)]
    assert min(asked) >= 297, "the cursors, and what comes after them"


def test_what_was_fed_is_looked_through_once_even_if_nothing_is_fed_then() -> None:
    facts = fed_and_saved(300)
    facts.cursors.clear()
    FeederState(FAMILIES, task_at, WIDE, facts).find_next()
    assert sorted(reloaded(facts).cursors.values()) == [(n, f"t-{n}") for n in range(300, 303)]


def test_cursors_of_another_suite_seed_or_families_are_none() -> None:
    """None of its tasks were fed, so all are, from the first one on."""

    def of_another(index: int) -> Task:
        return replace(task_at(index), task_id=f"other-{index}")

    state = FeederState(FAMILIES, of_another, WIDE, fed_and_saved(300))
    assert [task.task_id for task in state.due(7)] == [f"other-{n}" for n in range(12)]
    back = FeederState(FAMILIES, task_at, WIDE, reloaded(state.facts))
    back.facts.outstanding = Outstanding()
    assert [task.task_id for task in back.due(7)] == [f"t-{n}" for n in range(300, 312)], "back again, none is skipped"
    fewer = FeederState(FAMILIES[:2], lambda n: factories.task(f"t-{n}", family=f"family-{n % 2}"), WIDE, back.facts)
    fewer.facts.outstanding = Outstanding()
    assert min(int(task.task_id[2:]) for task in fewer.due(7)) == 312


def test_a_task_whose_record_was_not_read_back_is_no_fact_of_the_log() -> None:
    state = ledger_of(WIDE)
    state.facts.see_version(version(0, 4))
    assert state.facts.read_back
    tasks = state.due(7)
    for offset, task in enumerate(tasks):
        state.facts.see_sent(task.task_id, 1)
        assert not state.facts.read_back
        state.facts.see_task(task, LogPosition("tasks", 1, offset))
    assert state.facts.read_back


def test_a_saved_state_in_which_a_task_would_be_fed_for_ever_is_refused() -> None:
    for key, fed in (("t-2", []), ("t-1", ["t-1"])):
        facts = TaskFacts(3)
        facts.interrupted[key] = task_at(1)
        facts.fed = IdSet(fed)
        with pytest.raises(WireError, match="interrupted"):
            reloaded(facts)


def test_a_number_that_no_retry_has_is_a_part_of_the_id() -> None:
    """Ids are untrusted, and Python makes no integer of 4,300 digits."""
    for digits in ("9" * 10, "9" * 5000):
        facts = TaskFacts(max_retries=3)
        ended(f"task.r{digits}", 0, Outcome.INTERRUPTED, 0)(facts)
        assert list(facts.interrupted) == [f"task.r{digits}.r1"]
