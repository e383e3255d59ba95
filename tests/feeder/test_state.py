from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from distrl.config import Config
from distrl.feeder.admission import Admission
from distrl.feeder.facts import TaskFacts, next_retry
from distrl.feeder.run import new_state
from distrl.feeder.state import LEAST_WEIGHT, FeederState, choose_family
from distrl.tasks.lists import ListSuite
from distrl.tasks.row import Row
from distrl.types import LogPosition, Outcome, Split, Update, Watermark
from hypothesis import given
from hypothesis import strategies as st

from .test_admission import TOPIC, ledger_of, played, task_at, version

WIDE = Admission(trajectories_per_update=16, publish_every=1, max_lag=100, outstanding=12)


def fed(state: FeederState) -> list[str]:
    return [task.task_id for task in state.due(7)]


def test_nothing_is_fed_before_there_is_a_version_to_act_with() -> None:
    state = ledger_of(WIDE)
    assert state.due(7) == []
    state.facts.see_version(version(0, 4))
    tasks = state.due(7)
    assert len(tasks) == 12
    assert {(task.fed_at, task.fed_version) for task in tasks} == {(7, 0)}


def test_families_take_turns() -> None:
    state = ledger_of(WIDE)
    state.facts.see_version(version(0, 4))
    assert fed(state) == [f"t-{n}" for n in range(12)]


def test_a_feeder_that_starts_again_goes_on_with_the_tasks_that_were_never_fed() -> None:
    first = ledger_of(WIDE)
    first.facts.see_version(version(0, 4))
    tasks = first.due(7)
    second = ledger_of(WIDE)
    for task in tasks:
        second.facts.see_task(task)
    second.facts.see_version(version(0, 4))
    assert second.due(7) == []
    for offset, task in enumerate(tasks[:5]):
        second.facts.see_trajectory(offset, played(task, Outcome.SUCCESS, 0))
    assert fed(second) == [f"t-{n}" for n in range(12, 17)]


def test_an_interrupted_task_is_fed_again_under_its_next_id_until_the_retries_are_used_up() -> None:
    state = ledger_of(WIDE, max_retries=2)
    state.facts.see_version(version(3, 9))
    last = state.due(7)[0]
    for offset, name in enumerate(("t-0.r1", "t-0.r2")):
        state.facts.see_trajectory(offset, played(last, Outcome.INTERRUPTED))
        last = state.due(8)[0]
        assert (last.task_id, last.fed_at, last.fed_version) == (name, 8, 3)
        assert last.instruction == task_at(0).instruction
    state.facts.see_trajectory(2, played(last, Outcome.INTERRUPTED))
    assert fed(state) == ["t-12"]
    assert state.facts.retried == 2


def test_a_retry_that_an_earlier_feeder_has_fed_is_not_fed_twice() -> None:
    state = ledger_of(WIDE)
    task = task_at(0)
    state.facts.see_task(task)
    state.facts.see_task(replace(task, task_id="t-0.r1", fed_version=0))
    state.facts.see_trajectory(0, played(task, Outcome.INTERRUPTED))
    state.facts.see_version(version(0, 4))
    assert "t-0.r1" not in fed(state)


@pytest.mark.parametrize("field", ["task_id", "instruction"])
def test_an_interrupted_task_that_no_record_can_hold_is_not_fed_again(field: str) -> None:
    """Records are untrusted, and one without a key may have an id that key and value of a task have no room for: the
    broker's refusal would end the feeder at every start."""
    state = new_state(Config())
    state.facts.see_version(version(3, 9))
    for offset, length in enumerate((1_100_000, 100)):
        longer: dict[str, Any] = {field: f"{offset}" * length}
        task = replace(task_at(offset), **longer)
        state.facts.see_trajectory(offset, played(task, Outcome.INTERRUPTED))
    assert [task.task_id for task in state.due(7) if task.task_id.endswith(".r1")] == (
        ["1" * 100 + ".r1"] if field == "task_id" else ["t-1.r1"]
    )
    assert not state.facts.interrupted


def test_a_second_record_of_a_task_changes_nothing() -> None:
    state = ledger_of(WIDE)
    state.facts.see_version(version(0, 4))
    task = state.due(7)[0]
    state.facts.see_trajectory(0, played(task, Outcome.SUCCESS, 0))
    before = len(state.facts.outstanding)
    state.facts.see_trajectory(1, played(task, Outcome.INTERRUPTED))
    assert len(state.facts.outstanding) == before
    assert fed(state) == ["t-12"]


def test_an_unreadable_trajectory_frees_its_place() -> None:
    state = ledger_of(WIDE)
    state.facts.see_version(version(0, 4))
    state.due(7)
    state.facts.see_unreadable("t-3")
    assert fed(state) == ["t-12"]


@pytest.mark.parametrize(
    ("task_id", "most", "expected"),
    [("a", 3, "a.r1"), ("a.r1", 3, "a.r2"), ("a.r3", 3, None), ("a", 0, None), ("a.r0", 1, "a.r0.r1")],
)
def test_retries_are_numbered(task_id: str, most: int, expected: str | None) -> None:
    assert next_retry(task_id, most) == expected


counts = st.lists(st.tuples(st.integers(0, 500), st.floats(0, 1)), min_size=1, max_size=7)


@given(counts)
def test_round_robin_never_lets_families_drift_apart(trials: list[tuple[int, float]]) -> None:
    numbers = [count for count, _ in trials]
    chosen = choose_family(numbers, numbers, [0] * len(numbers), curriculum=False)
    assert numbers[chosen] == min(numbers)


def test_a_curriculum_feeds_in_proportion_to_failure_and_forgets_nothing() -> None:
    fed_by, tried, succeeded = [0, 0, 0], [1_000] * 3, [1_000, 500, 0]
    for _ in range(700):
        fed_by[choose_family(fed_by, tried, succeeded, curriculum=True)] += 1
    weights = [LEAST_WEIGHT, 0.5, 1.0]
    expected = [700 * weight / sum(weights) for weight in weights]
    assert fed_by == pytest.approx(expected, abs=3)


def test_the_curriculum_reaches_the_tasks_that_are_fed() -> None:
    state = ledger_of(Admission(16, 1, 100, 60), curriculum=True)
    state.facts.see_version(version(0, 4))
    for offset, task in enumerate(state.due(7)):
        state.facts.see_trajectory(
            offset, played(task, Outcome.FAILURE if task.family == "family-2" else Outcome.SUCCESS, 0)
        )
    families = Counter(task.family for task in state.due(8))
    assert families["family-2"] > 2 * families["family-0"]
    assert min(families.values()) > 0


def test_the_feeder_state_of_a_configuration_draws_from_its_suite() -> None:
    state = new_state(Config())
    assert state.task_at(3).split is Split.TRAIN
    assert [state.task_at(n).family for n in range(len(state.families))] == list(state.families)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.booleans()), max_size=60), st.data())
def test_a_task_ends_by_a_commit_only_if_it_was_done(facts: list[tuple[int, bool, bool]], data: st.DataObject) -> None:
    """facts: of each task its partition, whether it was done, and whether its trajectory was deleted since."""
    state = ledger_of(Admission(1, 1, 1000, 10_000))
    ends: Counter[int] = Counter()
    done: dict[int, list[bool]] = {}
    kept = []
    for number, (partition, was_done, deleted) in enumerate(facts):
        state.facts.see_task(task_at(number), LogPosition("tasks", partition, ends[partition]))
        ends[partition] += 1
        done.setdefault(partition, []).append(was_done)
        if was_done and not deleted:
            kept.append(number)
    committed = {}  # as InFlight does: a prefix of what is done
    for partition, each in done.items():
        prefix = each.index(False) if False in each else len(each)
        committed[partition] = data.draw(st.integers(0, prefix))
    for offset, number in enumerate(kept):
        state.facts.see_trajectory(offset, played(task_at(number), Outcome.SUCCESS, 0))
    ended = state.facts.see_committed(committed)
    assert all(facts[int(name.removeprefix("t-"))][1] for name in ended), "each was done"
    assert state.facts.see_committed(committed) == []
    assert len(state.facts.outstanding) >= sum(not was_done for _, was_done, _ in facts)
    if committed == {partition: len(each) for partition, each in done.items()}:
        assert len(state.facts.outstanding) == 0


def test_a_trajectory_that_comes_after_its_task_was_deleted_counts_as_unlearned() -> None:
    state = ledger_of(Admission(1, 1, 0, 10))
    state.facts.see_version(version(0, 0))
    state.facts.see_task(task_at(0), LogPosition("tasks", 1, 5))
    assert state.facts.see_deleted({0: 100, 1: 5}) == []
    assert state.facts.see_deleted({1: 6}) == ["t-0"]
    state.facts.see_trajectory(0, played(task_at(0), Outcome.SUCCESS, 0))
    assert fed(state) == [], "synchronous: one task a version, and it is not learned yet"


def test_a_task_whose_record_was_deleted_is_known_by_its_trajectory_and_by_the_tasks_after_it() -> None:
    state = ledger_of(WIDE)
    state.facts.deleted = 30
    state.facts.see_version(version(0, 4))
    for offset, number in enumerate(range(30, 36)):
        state.facts.see_trajectory(offset, played(task_at(number), Outcome.SUCCESS, 0))
    for number in range(36, 39):
        state.facts.see_task(task_at(number))
    assert fed(state) == [f"t-{n}" for n in range(39, 48)]


def several(
    facts: TaskFacts | None = None, episodes: int = 3, outstanding: int = 12, curriculum: bool = False
) -> FeederState:
    wide = replace(WIDE, outstanding=outstanding)
    families = ("family-0", "family-1", "family-2")
    state = FeederState(families, task_at, wide, facts or TaskFacts(2), curriculum, episodes)
    state.facts.see_version(version(0, 4))
    return state


def episodes_of(*numbers: int) -> list[str]:
    return [f"t-{n}{suffix}" for n in numbers for suffix in ("", ".e2", ".e3")]


def test_the_episodes_of_a_task_are_fed_one_after_the_other_as_the_same_task() -> None:
    tasks = several().due(7)
    assert [task.task_id for task in tasks] == episodes_of(0, 1, 2, 3)
    assert [replace(task, fed_at=0, fed_version=-1) for task in tasks[:3]] == [
        replace(task_at(0), task_id=name) for name in episodes_of(0)
    ]


@pytest.mark.parametrize("stop", range(1, 12))
def test_a_feeder_that_starts_again_within_a_task_goes_on_with_its_next_episode(stop: int) -> None:
    whole, first = several(outstanding=24).due(7), several(outstanding=stop)
    begun = first.due(7)
    read = TaskFacts(2)
    for task in begun:
        read.see_task(task)
    for facts in (first.facts, read):
        again = several(facts, outstanding=24)
        again.find_next()
        assert [*begun, *again.due(7)] == whole


def test_the_rest_of_a_task_comes_before_a_family_that_the_curriculum_prefers() -> None:
    state = several(outstanding=10, curriculum=True)
    tasks = state.due(7)
    assert tasks[-1].task_id == "t-3"
    for offset, task in enumerate(tasks):
        state.facts.see_trajectory(
            offset, played(task, Outcome.SUCCESS if task.family == "family-0" else Outcome.FAILURE, 0)
        )
    assert fed(state)[:4] == ["t-3.e2", "t-3.e3", "t-4", "t-4.e2"]


def test_an_interrupted_episode_is_retried_under_its_own_id() -> None:
    state = several(outstanding=2)
    state.facts.see_trajectory(0, played(state.due(7)[1], Outcome.INTERRUPTED))
    assert fed(state) == ["t-0.e2.r1"]
    state.facts.see_trajectory(1, played(replace(task_at(0), task_id="t-0.e2.r1"), Outcome.SUCCESS, 0))
    assert fed(state) == ["t-0.e3"]
    assert state.facts.retried == 1


def test_the_episodes_of_a_task_may_be_of_versions_that_are_further_apart_than_the_bound_on_the_lag() -> None:
    """The bound counts from the version that an episode is fed under, and what is fed later has a newer one."""
    in_step = Admission(trajectories_per_update=2, publish_every=1, max_lag=0, outstanding=12)
    state = FeederState(("family-0", "family-1", "family-2"), task_at, in_step, TaskFacts(2), episodes_per_task=3)
    found = []
    for number in range(2):
        state.facts.see_version(version(number, number))
        state.facts.see_update(Update(number, (Watermark(TOPIC, 0, 2 * number),), "f", 0), TOPIC)
        for offset, task in enumerate(state.due(7), start=2 * number):
            found.append((task.task_id, task.fed_version))
            state.facts.see_trajectory(offset, played(task, Outcome.SUCCESS, number))
    assert found[:3] == [("t-0", 0), ("t-0.e2", 0), ("t-0.e3", 1)]


def test_episodes_behind_deleted_records_are_not_fed_again() -> None:
    """The first two records are gone, both of t-0."""
    tasks, facts = several(outstanding=8).due(7), TaskFacts(2, deleted=2)
    for task in tasks[2:]:
        facts.see_task(task)
    state = several(facts, outstanding=10)
    state.find_next()
    assert fed(state) == ["t-2.e3", "t-3", "t-3.e2", "t-3.e3"]


def test_a_hole_of_long_ago_and_more_episodes_a_task_do_not_take_the_feeder_back() -> None:
    tasks, facts = several(outstanding=18).due(7), TaskFacts(2)
    for task in tasks:
        if task.task_id != "t-0.e2":
            facts.see_task(task)
    state = several(facts, episodes=5, outstanding=19)
    state.find_next()
    assert fed(state) == ["t-0.e2", "t-3.e4"]


@pytest.mark.parametrize("lost", [0, 1, 3, 4, 6, 7])
def test_an_episode_that_a_killed_feeder_left_out_is_fed_though_later_ones_were(lost: int) -> None:
    """Records of one batch go to several partitions, and those of one of them may not have been sent. Of the last
    episode of a task it is not known whether it was to be fed: there may have been fewer of each then."""
    tasks, facts = several(outstanding=9).due(7), TaskFacts(2)
    left = [task for number, task in enumerate(tasks) if number != lost]
    for task in left:
        facts.see_task(task)
    state = several(facts, outstanding=10)
    state.find_next()
    assert fed(state) == [tasks[lost].task_id, "t-3"]


def test_a_task_that_was_begun_after_a_snapshot_comes_first() -> None:
    """As a curriculum has it, or the counts of families."""
    state = several(outstanding=9)
    state.due(7)
    cursors = dict(state.facts.cursors)  # of tasks that are fed whole
    state.admission = replace(state.admission, outstanding=11)
    assert fed(state) == ["t-3", "t-3.e2"]
    state.facts.cursors = cursors
    state.facts.fed_by["family-0"] += 100  # another family's turn
    resumed = several(state.facts, outstanding=13)
    resumed.find_next()
    assert fed(resumed)[0] == "t-3.e3"


@pytest.mark.parametrize(("after", "expected"), [(1, "t-3"), (2, "t-3"), (5, "t-0.e4")])
def test_another_number_of_episodes_counts_from_the_last_task_of_each_family_on(after: int, expected: str) -> None:
    state = several(outstanding=9)
    state.due(7)
    assert several(state.facts, episodes=after, outstanding=10).due(7)[0].task_id == expected


@pytest.mark.parametrize("deleted", [0, 1, 5, 60])
def test_rows_that_a_list_gains_join_the_newest_round_also_where_records_were_deleted(deleted: int) -> None:
    def rows(count: int) -> ListSuite:
        return ListSuite("mine", [Row("", n, f"go to {n}", "mine", "go", Split.TRAIN, 5) for n in range(count)])

    def state(suite: ListSuite, facts: TaskFacts, outstanding: int) -> FeederState:
        found = FeederState(
            suite.families,
            lambda index: suite.task(index, 0, Split.TRAIN),
            replace(WIDE, outstanding=outstanding),
            facts,
            round_length=suite.round_length,
        )
        found.facts.see_version(version(0, 4))
        return found

    before, facts = state(rows(20), TaskFacts(2), 20 * 30 + 7).due(7), TaskFacts(2, deleted=deleted)
    for task in before[deleted:]:
        facts.see_task(task)
    grown = state(rows(40), facts, len(before) - deleted + 33)
    grown.find_next()
    later = [task.task_id for task in grown.due(7)]
    assert len(later) == 33
    assert not {task.task_id for task in before} & set(later), "nothing is fed again"
    rounds = {"0030", "0031"} if deleted else {"0030"}
    assert {name[-4:] for name in later} == rounds, "33 are left of it: 13 old and 20 new ones"


def test_a_list_feeds_nothing_again_though_records_of_the_round_that_is_fed_were_deleted() -> None:
    """With their trajectories: nothing tells that they were fed."""
    suite = ListSuite("mine", [Row("", n, f"go to {n}", "mine", "go", Split.TRAIN, 5) for n in range(40)])

    def state(facts: TaskFacts, outstanding: int) -> FeederState:
        wide = replace(WIDE, outstanding=outstanding)
        found = FeederState(suite.families, lambda n: suite.task(n, 0, Split.TRAIN), wide, facts, round_length=40)
        found.facts.see_version(version(0, 4))
        return found

    before, facts = state(TaskFacts(2), 30).due(7), TaskFacts(2, deleted=20)
    for task in before[20:]:
        facts.see_task(task)
    again = state(facts, 10 + 15)
    again.find_next()
    later = [task.task_id for task in again.due(7)]
    assert len(later) == 15
    assert not {task.task_id for task in before} & set(later)
