"""What V(s) and V_traj say where the truth is known, by the real fold: half of the trajectories succeed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.protocol import trajectory_steps
from distrl.types import Outcome, Trajectory

from learner.world import Screens, config, logged, trajectory, update_of

PAIRS = 10
LONG, SHORT = 6, 2
UPDATES, AVERAGED = 24, 8
TOLERANCE = 0.06
"""Of a mean over the last updates; what one minibatch moves a critic by is left in it."""


def episodes(screens: Screens, won: int) -> list[Trajectory]:
    """Successes of `won` steps and as many failures of the other length, alike in their first and in their last step.

    What lies between tells them apart.
    """
    found = []
    only = trajectory(screens, 1, steps=1).steps[0]
    for index in range(2 * PAIRS):
        success = index % 2 == 0
        length = won if success else LONG + SHORT - won
        shades = [0, *(60 + 15 * number + (70 if success else 0) for number in range(length - 2)), 255]
        outcome = Outcome.SUCCESS if success else Outcome.FAILURE
        steps = tuple(replace(only, screenshot=screens.plain(shade)) for shade in shades)
        found.append(replace(trajectory(screens, index, outcome=outcome), steps=steps))
    return found


def believed(state: LearnerState, played: Trajectory) -> tuple[float, float]:
    """V(s_0), and V_traj(s_H, a_H)."""
    steps = [step for step in trajectory_steps(played) if step.index in (0, len(played.steps) - 1)]
    with torch.no_grad():
        scored = state.context.score(steps)
        critics, actions = state.algorithm.critics, state.policy.embed_actions([each.step.action_ids for each in steps])
        values = critics.values(scored.states, scored.mask)
        outcomes = critics.trajectory_values(scored.states, scored.mask, actions)
    return values[0].sigmoid().item(), outcomes[1].sigmoid().item()


@pytest.mark.parametrize("won", [SHORT, LONG])
def test_critics_say_how_many_succeed_whichever_are_shorter(base_directory: Path, screens: Screens, won: int) -> None:
    """V(s_0) and V_traj came to 0.76 where successes were shorter, to 0.26 and 0.25 where they were longer."""
    settings = config(
        base_directory,
        "warmup.updates=0",
        f"algorithm.critic_warmup_updates={UPDATES}",
        "algorithm.gamma=1",
        "algorithm.minibatches=4",
        "algorithm.batch_size=64",
        "algorithm.replay.capacity=1000",
        "algorithm.critic_lr=0.01",
    )
    state, records, seen = LearnerState(settings), episodes(screens, won), []
    for u in range(UPDATES):
        window = logged(records) if u == 0 else []
        fold(state, window, update_of(u, window, state.watermarks, settings), screens, settings)
        seen.append(believed(state, records[0]))
    value, outcome = np.mean(seen[-AVERAGED:], axis=0)
    assert value == pytest.approx(0.5, abs=TOLERANCE)
    assert outcome == pytest.approx(0.5, abs=TOLERANCE)
