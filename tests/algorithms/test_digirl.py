"""DigiRL: its filters by hand, and what its updates do by the real fold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from distrl.algorithms.digirl import gains, kept
from distrl.config import Config, load
from distrl.learner.state import LearnerState
from distrl.policy.protocol import TrajectoryStep, trajectory_steps
from distrl.types import LoggedTrajectory, Outcome
from hypothesis import given
from hypothesis import strategies as st
from learner.world import Screens, config, folded, save_tiny_base, windows


def test_what_is_kept_exceeds_what_was_expected_most() -> None:
    outcomes, values = np.array([1.0, 1.0, 0.0, 0.0]), np.array([0.9, 0.2, 0.1, 0.8])
    assert kept(outcomes, values, 0.25).tolist() == [1]
    assert kept(outcomes, values, 0.5).tolist() == [0, 1]
    assert kept(outcomes, values, 0.51).tolist() == [0, 1, 2]
    assert kept(outcomes, np.full(4, 0.5), 0.25).tolist() == [0, 1]  # equals are not told apart


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1, max_size=20), st.floats(0.01, 1))
def test_no_trajectory_that_is_left_out_is_as_good_as_one_that_is_kept(
    rows: list[tuple[bool, float]], share: float
) -> None:
    outcomes, values = np.array([float(won) for won, _ in rows]), np.array([value for _, value in rows])
    best, gain = set(kept(outcomes, values, share).tolist()), outcomes - values
    assert len(best) >= share * len(rows)
    assert all(gain[left] < min(gain[row] for row in best) for left in set(range(len(rows))) - best)


def test_imitated_by_hand() -> None:
    """γ = 0.5, threshold 0.05: a success of three steps, then a failure whose second step lost what V had seen."""
    values = np.array([0.4, 0.1, 0.9, 0.2, 0.3, 0.26])
    rewards, last = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), np.array([0, 0, 1, 0, 0, 1], dtype=bool)
    gained = [0.25 + 0.1 - 0.4, 0.5 + 0.9 - 0.1, 1 + 1 - 0.9, 0.3 - 0.2, 0.26 - 0.3, 0 - 0.26]
    found = gains(values, rewards, last, 0.5)
    assert found.tolist() == pytest.approx(gained)
    assert (found > 0.05).tolist() == [False, True, True, True, False, False]


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    save_tiny_base(tmp_path)
    sets = ["type=digirl", "batch_size=16", "minibatches=8", "lr=0.01", "kept_share=0.5", "critic_warmup_updates=1"]
    algorithm = load(sets=[f"algorithm.{each}" for each in sets], environ={}).algorithm
    return config(tmp_path).model_copy(update={"algorithm": algorithm})


def steps_of(records: list[list[LoggedTrajectory]], outcome: Outcome) -> list[TrajectoryStep]:
    found = [item.trajectory for window in records for item in window if item.trajectory.outcome is outcome]
    return [step for trajectory in found for step in trajectory_steps(trajectory)]


def test_the_critics_train_alone_first_and_then_successes_are_imitated(settings: Config) -> None:
    screens = Screens()
    records = windows(screens, settings, 9)
    state = folded(LearnerState(settings), records[:3], screens, settings)
    before = state.digests()
    folded(state, records[:4], screens, settings)
    assert state.digests()["adapter"] == before["adapter"]
    assert state.digests()["critic"] != before["critic"]
    won, lost = (steps_of(records[3:], outcome) for outcome in (Outcome.SUCCESS, Outcome.FAILURE))
    state.features.load((each.step.screenshot for each in won + lost), screens)

    def gap() -> float:
        with torch.no_grad():
            one, other = (float(state.context.score(steps).logprob.mean()) for steps in (won, lost))
        return one - other

    first = gap()
    folded(state, records, screens, settings)
    assert gap() > first + 0.05


def test_steps_that_gain_too_little_are_not_imitated(settings: Config) -> None:
    """No gain is above 1 on a failure's steps, so with this threshold failures change no weight of the policy."""
    screens, algorithm = Screens(), settings.algorithm.model_copy(update={"threshold": 1.0})
    chosen = settings.model_copy(update={"algorithm": algorithm})
    lost = [
        [
            item
            if item.trajectory.is_expert
            else replace(item, trajectory=replace(item.trajectory, outcome=Outcome.FAILURE))
            for item in window
        ]
        for window in windows(screens, chosen, 6)
    ]
    without = chosen.model_copy(
        update={
            "algorithm": algorithm.model_copy(
                update={"replay": algorithm.replay.model_copy(update={"demonstrations": False})}
            )
        }
    )
    adapters = [folded(LearnerState(without), lost[:count], screens, without).digests()["adapter"] for count in (3, 6)]
    assert adapters[0] == adapters[1]
