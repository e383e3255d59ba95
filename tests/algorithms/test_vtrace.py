"""V-trace: its credit by hand, and what its updates do by the real fold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from distrl.algorithms.vtrace import credit
from distrl.config import Config, load
from distrl.config.algorithms import VtraceSettings
from distrl.errors import ConfigError
from distrl.learner.state import LearnerState
from distrl.policy.protocol import trajectory_steps
from distrl.types import Outcome
from learner.world import Screens, config, folded, save_tiny_base, windows


def test_credit_by_hand() -> None:
    """Two trajectories, γ = 0.5: the second one's last action is half as likely as when it was drawn."""
    values, ratios = np.array([0.2, 0.6, 0.5]), np.array([2.0, 1.0, 0.5])
    rewards, last = np.array([0.0, 1.0, 0.0]), np.array([False, True, True])
    targets, advantages = credit(values, ratios, rewards, last, VtraceSettings(gamma=0.5))
    assert targets == pytest.approx([0.5, 1.0, 0.5 - 0.5 * 0.5])
    assert advantages == pytest.approx([0.5 - 0.2, 0.4, -0.5])


def test_targets_are_probabilities_where_the_correction_leaves_them() -> None:
    values, rewards, last = np.array([0.9]), np.array([1.0]), np.array([True])
    targets, _ = credit(values, np.array([3.0]), rewards, last, VtraceSettings(rho_max=3.0))
    assert targets.tolist() == [1.0]


def test_traces_longer_than_ratios_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.c_max must be at most algorithm\.rho_max"):
        load(sets=["algorithm.type=vtrace", "algorithm.c_max=2"], environ={})


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    save_tiny_base(tmp_path)
    sets = ["algorithm.type=vtrace", "algorithm.batch_size=16", "algorithm.minibatches=8", "algorithm.lr=0.01"]
    algorithm = load(sets=[*sets, "algorithm.critic_warmup_updates=1"], environ={}).algorithm
    return config(tmp_path).model_copy(update={"algorithm": algorithm})


def test_the_critic_trains_alone_first_and_then_what_succeeds_becomes_likelier_than_what_fails(
    settings: Config,
) -> None:
    screens = Screens()
    records = windows(screens, settings, 9)
    state = folded(LearnerState(settings), records[:3], screens, settings)
    before = state.digests()
    folded(state, records[:4], screens, settings)
    assert state.digests()["adapter"] == before["adapter"]
    assert state.digests()["critic"] != before["critic"]

    def gap() -> float:
        """Mean log π of the steps of successes, less that of failures."""
        mean = []
        for outcome in (Outcome.SUCCESS, Outcome.FAILURE):
            chosen = [e.trajectory for w in records[3:] for e in w if e.trajectory.outcome is outcome]
            steps = [step for trajectory in chosen for step in trajectory_steps(trajectory)]
            state.features.load((each.step.screenshot for each in steps), screens)
            with torch.no_grad():
                mean.append(float(state.context.score(steps).logprob.mean()))
        return mean[0] - mean[1]

    first = gap()
    folded(state, records, screens, settings)
    assert gap() > first + 0.05


def test_demonstrations_stay_in_the_buffer_only_where_asked(settings: Config) -> None:
    screens = Screens()
    for asked in (True, False):
        replay = settings.algorithm.replay.model_copy(update={"demonstrations": asked})
        chosen = replace_algorithm(settings, replay=replay)
        state = folded(LearnerState(chosen), windows(screens, chosen, 5), screens, chosen)
        held = [each.logged.trajectory.is_expert for each in state.algorithm.memory.uses(5)]
        assert any(held) is asked
        assert not all(held)


def replace_algorithm(settings: Config, **values: object) -> Config:
    return settings.model_copy(update={"algorithm": settings.algorithm.model_copy(update=values)})
