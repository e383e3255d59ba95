"""A-RIDE (DistRL, section 5): advantage policy gradient with Retrace-corrected values on off-policy trajectories.

y_t = clip(V(s_t) + δ_t, 0, 1)                         what V is fitted to
A_t = r_t + penalty_t + γ y_{t+1} − V(s_t)             (algorithm.advantage names the reading)
L   = −E[ρ A log π] − β E[H(π)] + λ E[ρ P_invalid log π]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from distrl.algorithms import losses
from distrl.algorithms.returns import (
    Array,
    Mask,
    advantages,
    monte_carlo,
    next_values,
    penalties,
    retrace_targets,
    td_errors,
)
from distrl.config import ArideSettings
from distrl.types import ActionKind, HeldBack, Step


@dataclass(frozen=True, slots=True)
class Credit:
    """What each step of some trajectories is worth; all (N,)."""

    td: Array
    """td_t of equation 3; decides priorities."""
    targets: Array
    """y_t in [0, 1], for V(s_t)."""
    advantages: Array
    """A(s_t, a_t), for the policy."""


def credit(
    values: Array,
    ratios: Array,
    penalty: Array,
    rewards: Array,
    config: ArideSettings,
    bootstrap: ArrayLike = 0.0,
    last: Mask | None = None,
) -> Credit:
    """Credit of whole trajectories from V(s_t), ρ_t, penalties and rewards, each (N,).

    bootstrap: V(s_{H+1}) of failures that the step limit cut off, 0 at a real end; a number, or (N,) with 0 on all but
    last steps. last: as in returns.py; None: one trajectory.
    """
    td = td_errors(rewards, values, config.gamma, bootstrap, last)
    if config.retrace:
        targets = retrace_targets(values, td, ratios, config.gamma, config.retrace_lambda, last)
    else:
        chance = monte_carlo(next_values(np.zeros_like(rewards), bootstrap, last), 1.0, last)
        targets = np.maximum(monte_carlo(rewards, config.gamma, last) > 0, chance)
    form = config.advantage
    return Credit(td, targets, advantages(form, rewards, penalty, values, targets, config.gamma, bootstrap, last))


def is_invalid(step: Step) -> bool:
    """Whether P_invalid of equation 1 is 1: the text is no action, the phone cannot do the action (such as typing text
    that it cannot type), or a judge found that it cannot be done on that screen.

    An action without a verdict counts as valid.
    """
    refused = step.held_back is HeldBack.REFUSED
    return step.action.kind is ActionKind.INVALID or refused or step.valid is False


def penalties_of(steps: Sequence[Step], config: ArideSettings) -> Array:
    """(T,) the immediate penalties of a trajectory's steps."""
    return penalties(
        [step.action_text for step in steps],
        [step.screenshot.sha256 for step in steps],
        [is_invalid(step) for step in steps],
        config.repetition_penalty,
        config.invalid_reward,
    )


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
