"""Which transitions of A-RIDE's buffer an update scores anew, and what is kept of the scores."""

from __future__ import annotations

import numpy as np
import pytest
from distrl.algorithms.aride.memory import ArideMemory, Scores
from distrl.config import Config, load
from distrl.replay.circular import Rows
from distrl.types import Action, ActionKind, LoggedTrajectory, LogPosition, ObjectRef, Outcome
from factories import step, task, trajectory
from hypothesis import given
from hypothesis import strategies as st

BATCH = 4
BACK = Action(ActionKind.BACK)


def settings(*sets: str) -> Config:
    given = (
        "warmup.updates=0",
        "algorithm.critic_warmup_updates=0",
        "algorithm.minibatches=1",
        f"algorithm.batch_size={BATCH}",
        "algorithm.replay.refresh_share=0.5",
        "algorithm.replay.refresh_within=3",
        "algorithm.replay.capacity=40",
    )
    return load(sets=[*given, *sets], environ={})


def record(offset: int, steps: int, *, cut: bool = False) -> LoggedTrajectory:
    """cut: a failure that used up its steps, with a screen after the last."""
    made = [step(logprob=-1.0, at=index, action=BACK) for index in range(steps)]
    screen = ObjectRef(f"screenshots/{'a' * 64}.png", "a" * 64, 1) if cut else None
    return LoggedTrajectory(
        LogPosition("trajectories", 0, offset),
        trajectory(
            task(f"t{offset}", max_steps=steps if cut else 99),
            made,
            outcome=Outcome.FAILURE if cut else Outcome.SUCCESS,
            final_screenshot=screen,
        ),
    )


def scores(count: int, value: float = 0.5, *, after: float | None = 0.0) -> Scores:
    rows = np.full(count, value)
    return Scores(rows, -rows, rows, None if after is None else np.full(count, after))


def update(memory: ArideMemory, u: int) -> list[tuple[int, int]]:
    """What the networks would do: (offset, step) of what was scored anew; minibatches are kept, too."""
    outdated = memory.outdated(u)
    memory.take(u, outdated, scores(len(outdated)))
    memory.assign_credit()
    drawn = memory.draw(u).rows
    memory.take(u, drawn, scores(len(drawn), after=None))
    return [(entry.logged.position.offset, index) for entry, index in outdated]


def scored(memory: ArideMemory) -> list[float]:
    return memory.buffer.columns["scored"][memory.buffer.live()].tolist()


def test_new_trajectories_are_scored_whole_whatever_the_share() -> None:
    memory = ArideMemory(settings("algorithm.replay.refresh_share=0"))
    memory.admit(record(0, 5))
    assert update(memory, 0) == [(0, index) for index in range(5)]
    memory.admit(record(1, 3))
    assert update(memory, 1) == [(1, index) for index in range(3)]


def test_new_trajectories_count_among_the_share_so_a_large_window_leaves_older_scores_as_they_are() -> None:
    memory = ArideMemory(settings("algorithm.replay.refresh_share=1", "algorithm.replay.refresh_within=1"))
    memory.admit(record(0, 8))
    update(memory, 0)
    memory.buffer.columns["scored"][:8] = 1
    for offset, steps, older in ((1, 3, 1), (2, 4, 0), (3, 6, 0)):
        memory.admit(record(offset, steps))
        memory.buffer.columns["scored"][7] = 2  # of record 0, so that none of its steps is due
        found = [(entry.logged.position.offset, index) for entry, index in memory.outdated(1)]
        assert [row for row in found if row[0] == 0] == [(0, index) for index in range(older)]
        memory.buffer.columns["scored"][memory.buffer.live()[8:]] = 2


def test_what_was_scored_longest_ago_is_next_up_to_the_share() -> None:
    memory = ArideMemory(settings())
    memory.admit(record(0, 8))
    memory.buffer.columns["scored"][:8] = [9, 3, 5, 4, 9, 9, 9, 9]
    assert [index for _, index in memory.outdated(9)] == [1, 3], "half of a batch of four"


def test_no_more_are_scored_than_keep_all_new_enough() -> None:
    memory = ArideMemory(settings("algorithm.replay.refresh_share=9", "algorithm.replay.refresh_within=4"))
    memory.admit(record(0, 6))
    assert [len(update(memory, u)) for u in range(4)] == [6, 2, 2, 2]
    assert memory.ages(3)["score_age"] < 4


def test_critics_alone_read_everything_anew() -> None:
    memory = ArideMemory(settings("algorithm.critic_warmup_updates=2"))
    memory.admit(record(0, 6))
    assert [len(update(memory, u)) for u in (0, 1)] == [6, 6]
    assert len(update(memory, 2)) == 2


def test_a_trajectory_without_a_new_score_comes_before_what_is_older() -> None:
    memory = ArideMemory(settings())
    memory.admit(record(0, 3))
    memory.admit(record(1, 2))
    memory.buffer.columns["scored"][:5] = [1, 1, 9, 7, 6]
    assert list(memory.outdated(9)) == [(memory.buffer.entries[0], 0), (memory.buffer.entries[1], 1)]
    assert memory.ages(9) == {"score_age": pytest.approx(5.2), "priority_age": 3.0}


def test_a_minibatch_renews_scores_and_of_two_the_later_one() -> None:
    memory = ArideMemory(settings())
    memory.admit(record(0, 3))
    update(memory, 0)
    rows = Rows(memory.buffer.layout, np.array([0, 0]), np.array([1, 1]))
    memory.take(7, rows, Scores(np.array([0.1, 0.2]), np.array([-2.0, -1.5]), np.zeros(2)))
    columns = memory.buffer.columns
    assert (columns["value"][1], columns["nll"][1], columns["scored"][1]) == (0.2, 1.5, 8.0)
    assert columns["ratio"][1] == pytest.approx(np.exp(-0.5))
    assert columns["v_traj"][:3].tolist() == [0.0, 0.0, 0.5], "that of a last step alone"


@pytest.mark.parametrize(("truncation", "date"), [("bootstrap", 1.0), ("terminal", 8.0)])
def test_a_minibatch_does_not_date_a_step_whose_screen_after_it_did_not_see(truncation: str, date: float) -> None:
    memory = ArideMemory(settings(f"algorithm.truncation={truncation}"))
    memory.admit(record(0, 3, cut=True))
    memory.take(0, memory.outdated(0), scores(3, after=0.7))
    rows = Rows(memory.buffer.layout, np.array([0, 0]), np.array([1, 2]))
    memory.take(7, rows, scores(2, 0.2, after=None))
    columns = memory.buffer.columns
    assert columns["scored"][:3].tolist() == [1.0, 8.0, date]
    assert columns["value"][:3].tolist() == [0.5, 0.2, 0.2]
    assert columns["after"][2] == 0.7


def test_an_empty_buffer_has_nothing_to_score() -> None:
    memory = ArideMemory(settings())
    assert update(memory, 0) == []
    assert memory.ages(0) == {}


@given(st.lists(st.lists(st.integers(1, 6), max_size=4), min_size=1, max_size=12), st.integers(1, 5))
def test_every_trajectory_has_a_score_that_is_new_enough(windows: list[list[int]], within: int) -> None:
    memory = ArideMemory(settings(f"algorithm.replay.refresh_within={within}"))
    offset = 0
    for u, window in enumerate(windows):
        for length in window:
            memory.admit(record(offset, length))
            offset += 1
        rows = memory.outdated(u)
        assert len({(entry.start, index) for entry, index in rows}) == len(rows)
        memory.take(u, rows, scores(len(rows)))
        memory.assign_credit()
        assert 0.0 not in scored(memory)
        assert memory.ages(u).get("priority_age", 0.0) < within
        assert len(rows) >= min(-(-len(memory.buffer) // within), BATCH // 2)
        drawn = memory.draw(u).rows
        memory.take(u, drawn, scores(len(drawn), after=None))
