"""A recurrent Q from phone to gradient: what a worker remembered in an episode, a learner makes again of its record."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from distrl.learner.fold import is_usable
from distrl.learner.state import LearnerState
from distrl.offline.mismatch import EXACT, Checked, report
from distrl.policy.protocol import trajectory_steps
from distrl.policy.registry import policy_of
from distrl.policy.sampling import FULL, Ladder, Sampling

from learner.test_history_screens import STEPS, played
from learner.world import Screens, config, folded, q_base


def test_ratio_is_one_at_each_step_of_what_was_played_and_it_is_learned_from(
    base_directory: Path, tmp_path: Path
) -> None:
    """At equal weights, of episodes scored all at once, and each step alone: within 1e-4."""
    settings, screens = config(q_base(tmp_path / "q", base_directory), "warmup.updates=0"), Screens()
    state, worker = LearnerState(settings), policy_of(settings.policy, seed=7)
    worker.load(state.policy.adapter())
    records = played(worker, screens, 3)
    assert all(is_usable(logged.trajectory, worker.tokenizer) for logged in records)
    state.features.load(state.screens(records), screens)
    steps = [step for logged in records for step in trajectory_steps(logged.trajectory)]
    assert max(step.index for step in steps) == STEPS - 1
    recorded = np.array([each.step.logprob for each in steps])
    with torch.no_grad():
        together = state.context.score(steps).logprob.numpy()
        alone = np.array([state.context.score([step]).logprob.item() for step in steps])
    assert np.abs(np.exp(together - recorded) - 1).max() < 1e-4
    assert np.abs(np.exp(alone - recorded) - 1).max() < 1e-4
    assert folded(state, [records], screens, settings).held() == records


def test_what_a_ladder_has_recorded_is_scored_again_by_each_episodes_epsilon(
    base_directory: Path, tmp_path: Path
) -> None:
    """From the record and the settings alone; without the ladder it is seen that other probabilities were recorded."""
    policy = policy_of(config(q_base(tmp_path / "q", base_directory)).policy)
    screens, ladder = Screens(), Sampling(epsilon=Ladder(4))
    records = played(policy, screens, 6, ladder)
    assert len({Ladder(4).of(each.trajectory.task_id) for each in records}) > 2
    steps = sum(len(each.trajectory.steps) for each in records)
    for sampling, exact in ((ladder, True), (FULL, False)):
        check = Checked(policy, policy, sampling, screens, lambda sha256: policy.adapter(), rows=5)
        found = report(check.play(records), check).by_name
        assert found["learner and worker"].steps == steps
        assert found["learner and worker"].largest < EXACT
        assert (found["learner and record"].largest < EXACT) == exact
