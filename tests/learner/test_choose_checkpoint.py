"""The journal's rule of what is void, and the choice of where to resume, against plain restatements of both."""

from __future__ import annotations

from dataclasses import replace

import factories
from distrl.broker.journal import History, in_force
from distrl.learner.choose_checkpoint import Saved, beyond, chain, choose, refusal
from distrl.learner.reservations import Reservation
from distrl.types import LogPosition, Update, Version, Watermark
from hypothesis import given
from hypothesis import strategies as st

PLACE = ("t", 0)


def line(u: int, offset: int = 0, *, void: str = "", version: int = -1, window: str = "") -> Update:
    return Update(u, (Watermark("t", 0, offset),), "f", 0, (), window, "ids", version, void)


def version(number: int, update: int, *supersedes: int) -> Version:
    return factories.version(number, parent=None, update=update, supersedes=supersedes)


def journal(offsets: list[int]) -> list[Update]:
    return [line(u, offset, window=f"{u}-{offset}") for u, offset in enumerate(offsets)]


lines = st.lists(
    st.builds(line, st.integers(0, 6), st.integers(0, 9), void=st.sampled_from(["", "", "", "lost"])), max_size=25
)


@given(lines)
def test_the_updates_that_count_have_no_gap_and_the_latest_line_of_each_wins(found: list[Update]) -> None:
    said = History.of(found)
    assert [each.u for each in said.updates] == list(range(len(said.updates)))
    for each in said.updates:
        after = found[max(at for at, one in enumerate(found) if one is each) + 1 :]
        assert not any(one.u <= each.u for one in after), "nothing later made it void"
    for cut in range(len(found)):  # a prefix of lines says the same, whoever reads it and however often
        assert History.of(found[:cut]).updates == History.of(found[:cut]).updates


@given(lines)
def test_what_counted_before_each_line_that_made_updates_void_is_what_the_lines_before_it_say(
    found: list[Update],
) -> None:
    before = [(each, History.of(found[:at]).updates) for at, each in enumerate(found) if each.void]
    assert list(History.of(found).before_voids()) == [said for each, said in before if each.u < len(said)]


@given(lines, st.integers(0, 6))
def test_a_line_that_follows_what_is_lost_counts_for_nothing(found: list[Update], beyond_by: int) -> None:
    said = History.of(found)
    late = line(len(said.updates) + 1 + beyond_by)
    assert History.of([*found, late]).updates == said.updates
    assert History.of([*found, line(len(said.updates))]).updates == (*said.updates, line(len(said.updates)))


@given(
    st.lists(st.integers(0, 5), max_size=10),
    st.integers(0, 10),
    st.integers(0, 40),
    st.integers(0, 40),
    st.sets(st.integers(0, 12)),
)
def test_the_newest_checkpoint_that_journal_and_log_support_is_chosen(
    steps: list[int], journalled: int, first: int, end: int, saved_at: set[int]
) -> None:
    offsets = [sum(steps[: at + 1]) for at in range(len(steps))]
    whole = journal(offsets)
    saved = [
        Saved(
            u,
            {PLACE: offsets[u - 1]} if u else {},
            (LogPosition("t", 0, offsets[u - 1] - 1),) if u and offsets[u - 1] else (),
            chain(whole[:u]),
        )
        for u in sorted(saved_at)
        if u <= len(whole)
    ]
    updates = whole[:journalled]
    chosen = choose(saved, updates, {PLACE: (first, end)})

    def supported(each: Saved) -> bool:
        held = all(first <= at.offset < end for at in each.needed)
        return each.u <= len(updates) and (not each.u or offsets[each.u - 1] <= end) and held

    assert chosen.u == max((each.u for each in saved if supported(each)), default=None)
    assert set(chosen.refused) == {each.u for each in saved if chosen.u is None or each.u > chosen.u}


def test_a_checkpoint_of_another_history_is_refused_though_its_watermarks_are_the_journals() -> None:
    updates = journal([3, 6, 9])
    other = [*updates[:2], replace(updates[2], window_sha256="grown again")]
    saved = Saved(3, {PLACE: 9}, (), chain(other))
    ranges = {PLACE: (0, 9)}
    assert refusal(saved, updates, ranges) == "it has folded other updates than the journal's"
    assert refusal(saved, other, ranges) is None
    assert refusal(replace(saved, history=""), updates, ranges) is None, "an older one does not say"


def test_versions_of_void_updates_count_no_more_and_later_ones_of_the_same_updates_do() -> None:
    said = History.of([*journal([3, 6, 9, 12]), line(2, 6, void="lost", version=3), *journal([3, 6, 8])[2:]])
    published = [version(0, 0), version(1, 1), version(2, 2), version(3, 3), version(4, 1, 2, 3), version(5, 2)]
    assert [each.version for each in in_force(published, said)] == [0, 1, 4, 5]
    assert [each.version for each in in_force(published, History())] == [0, 1, 4, 5], "by the one that names them"


def test_versions_that_follow_lost_updates_lie_beyond_the_journal() -> None:
    published = [version(number, number) for number in range(5)]
    assert beyond(History.of(journal([3, 6])), published) == [2, 3, 4]
    assert beyond(History.of([*journal([3, 6]), line(2, 6, void="lost", version=4)]), published) == []
    assert beyond(History.of(journal([3, 6])), [*published, version(5, 1, 2, 3, 4)]) == []


def test_a_reserved_number_of_a_lost_update_may_be_of_a_version_that_shows_later() -> None:
    def found(lines: list[Update], published: int, number: int, update: int) -> list[int]:
        visible = [version(each, each + 1) for each in range(published + 1)]
        return beyond(History.of(lines), visible, [Reservation(number, update, "f" * 64)])

    lines = [line(0), line(1), line(2, version=0)]  # version 0 follows update 1, and 1 follows update 2
    assert found(lines, 0, 1, 2) == [], "killed before it was published: it will have the same weights"
    assert found(lines, 0, 2, 3) == [2]
    assert found([], -1, 6, 7) == [6]
    assert found(lines, 2, 2, 3) == [2], "seen"
    assert found([*lines, line(3, version=2, void="lost")], 0, 2, 3) == [], "the line says that they are void"


def test_a_version_whose_number_was_given_before_its_update_was_journalled_is_of_a_lost_one() -> None:
    said = History.of([line(0), line(1, version=6), line(2, version=7), line(3, version=8)])
    published = [version(5, 0), version(6, 1), version(7, 1), version(8, 2), version(9, 4), version(10, -1)]
    assert [each.version for each in in_force(published, said)] == [5, 7, 8, 9, 10]
    assert beyond(said, published) == [9]
