"""A-RIDE (DistRL, section 5): advantage policy gradient with Retrace-corrected values on off-policy trajectories.

y_t = clip(V(s_t) + δ_t, 0, 1)                         what V is fitted to
A_t = r_t + penalty_t + γ y_{t+1} − V(s_t)             (algorithm.advantage names the reading)
L   = −E[ρ A log π] − β E[H(π)] + λ E[ρ P_invalid log π]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from distrl.algorithms import losses
from distrl.algorithms.returns import (
    Array,
    advantages,
    monte_carlo,
    outcome_rewards,
    retrace_targets,
    td_errors,
)
from distrl.config import ArideSettings


@dataclass(frozen=True, slots=True)
class Credit:
    """What each step of one trajectory is worth; all (T,)."""

    td: Array
    """td_t of equation 3: surprise, for priorities."""
    targets: Array
    """y_t in [0, 1], for V(s_t)."""
    advantages: Array
    """A(s_t, a_t), for the policy."""


def credit(
    values: Array, ratios: Array, penalty: Array, success: bool, config: ArideSettings, bootstrap: float = 0.0
) -> Credit:
    """Credit of one trajectory from V(s_t), ρ_t and penalties, each (T,), and its outcome.

    bootstrap: V(s_{H+1}) of a failure that is taken to have been cut off, 0 at a real end.
    """
    rewards = outcome_rewards(len(values), success)
    td = td_errors(rewards, values, config.gamma, bootstrap)
    if config.retrace:
        targets = retrace_targets(values, td, ratios, config.gamma, config.retrace_lambda)
    else:
        targets = np.maximum(monte_carlo(rewards, config.gamma) > 0, bootstrap)
    return Credit(td, targets, advantages(config.advantage, rewards, penalty, values, targets, config.gamma, bootstrap))


def loss_and_ratio(
    logprob: Tensor, entropy: Tensor, behaviour_logprob: Tensor, shaped: Tensor, invalid: Tensor, config: ArideSettings
) -> tuple[Tensor, Tensor]:
    """(loss, ρ) of some rows: equation 1 on shaped advantages; ρ (B,) unclipped. All inputs (B,)."""
    ratio = losses.importance_ratio(logprob, behaviour_logprob)
    loss = losses.policy_loss(
        logprob,
        entropy,
        ratio,
        shaped,
        invalid,
        beta=config.entropy,
        lam=config.invalid_penalty,
        ratio_clip=config.ratio_clip,
    )
    return loss, ratio
