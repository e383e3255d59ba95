"""The bookkeeping of tasks in flight, against a plain model of the same facts."""

from __future__ import annotations

from distrl.broker.inflight import InFlight
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule


@given(st.lists(st.integers(0, 1000), unique=True, min_size=1).map(sorted), st.data())
def test_only_the_prefix_that_is_done_is_committable(offsets: list[int], data: st.DataObject) -> None:
    flight = InFlight()
    flight.assigned([0])
    assert all(flight.delivered(0, offset) for offset in offsets)
    finished: set[int] = set()
    for offset in data.draw(st.permutations(offsets)):
        assert flight.finished(0, offset)
        finished.add(offset)
        prefix = [o for i, o in enumerate(offsets) if finished.issuperset(offsets[: i + 1])]
        assert flight.committable() == ({0: prefix[-1] + 1} if prefix else {})
    assert flight.committable() == {0: offsets[-1] + 1}
    assert flight.running == 0


def test_a_confirmed_commit_is_not_repeated() -> None:
    flight = InFlight()
    flight.assigned([3])
    flight.delivered(3, 0)
    flight.finished(3, 0)
    flight.confirmed({3: 1})
    assert flight.committable() == {}
    flight.delivered(3, 1)
    flight.finished(3, 1)
    assert flight.committable() == {3: 2}


def test_a_revoked_partition_is_dropped_quietly() -> None:
    flight = InFlight()
    flight.assigned([0, 1])
    flight.delivered(0, 5)
    flight.delivered(1, 7)
    flight.revoked([0])
    assert not flight.finished(0, 5)
    assert flight.finished(1, 7)
    assert flight.committable() == {1: 8}


def test_a_task_that_still_runs_is_not_begun_again_when_its_partition_comes_back() -> None:
    flight = InFlight()
    flight.assigned([0])
    assert flight.delivered(0, 5)
    flight.revoked([0])
    flight.assigned([0])
    assert not flight.delivered(0, 5)
    assert flight.running == 1
    assert flight.finished(0, 5)
    assert flight.committable() == {0: 6}


def test_a_task_that_ended_while_its_partition_was_away_is_begun_again() -> None:
    flight = InFlight()
    flight.assigned([0])
    flight.delivered(0, 5)
    flight.revoked([0])
    flight.finished(0, 5)
    flight.assigned([0])
    assert flight.delivered(0, 5)


class Rebalances(RuleBasedStateMachine):
    """A partition that comes and goes, redelivering from its last commit, as the broker does."""

    begun: Bundle[int] = Bundle("begun")

    def __init__(self) -> None:
        super().__init__()
        self.flight = InFlight()
        self.owned = False
        self.stored = 0  # the group's committed offset
        self.reads_at = 0
        self.running: list[int] = []
        self.acknowledged: set[int] = set()

    @rule()
    def assign(self) -> None:
        if not self.owned:
            self.flight.assigned([0])
            self.owned, self.reads_at = True, self.stored

    @rule()
    def revoke(self) -> None:
        self.flight.revoked([0])
        self.owned = False

    @rule(target=begun)
    def deliver(self) -> int:
        if not self.owned:
            return -1
        offset, self.reads_at = self.reads_at, self.reads_at + 1
        if not self.flight.delivered(0, offset):
            return -1
        assert offset not in self.running, "begun twice at once"
        self.running.append(offset)
        return offset

    @rule(offset=consumes(begun))
    def finish(self, offset: int) -> None:
        if offset in self.running:
            self.flight.finished(0, offset)
            self.running.remove(offset)
            self.acknowledged.add(offset)

    @rule()
    def commit(self) -> None:
        due = self.flight.committable()
        self.flight.confirmed(due)
        self.stored = due.get(0, self.stored)

    @invariant()
    def nothing_is_committed_before_its_trajectory_is_acknowledged(self) -> None:
        due = self.flight.committable().get(0, self.stored)
        assert due >= self.stored
        assert self.acknowledged.issuperset(range(due))


TestRebalances = Rebalances.TestCase


def test_a_task_that_was_dropped_is_begun_when_its_partition_comes_back() -> None:
    flight = InFlight()
    flight.assigned([0])
    assert flight.delivered(0, 7)
    assert flight.delivered(0, 8)
    flight.dropped(0, 8)
    flight.revoked([0])
    assert flight.running == 1
    flight.assigned([0])
    assert not flight.delivered(0, 7), "it still runs here"
    assert flight.delivered(0, 8)
