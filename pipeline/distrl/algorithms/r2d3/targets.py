"""Targets of Q and priorities of sequences in R2D3: pure functions in float64.

y_t = h(Σ_{k<m} γ^k r_{t+k} + γ^m h⁻¹(Q⁻(s_{t+m}, argmax_a Q(s_{t+m}, a)))),   m = n, or less near a sequence's end

Q is the network that learns, Q⁻ its copy of some updates ago (double Q-learning, arXiv 1509.06461), h the rescaling of
R2D2 (arXiv 1805.11593, section 3.2). Symbols: B sequences, T steps in each, A actions.
"""

from __future__ import annotations

import numpy as np

from distrl.algorithms.returns import Array, Mask, n_step_returns, rescaled, unscaled


def has_target(ends: Mask, present: Mask) -> Mask:
    """(B, T) the steps that have a target: the step after them is in the sequence, or they ended the episode.

    ends: (B, T) whether a step is the last of its episode. present: (B, T) False for padding.
    """
    followed = np.zeros_like(present)
    followed[:, :-1] = present[:, 1:]
    return present & (ends | followed)


def double_q_targets(
    rewards: Array,
    ends: Mask,
    present: Mask,
    online: Array,
    target: Array,
    gamma: float,
    n: int,
    epsilon: float = 1e-3,
) -> Array:
    """(B, T) y_t; 0 where `has_target` is False.

    A sequence that is cut off before its episode ends bootstraps from its last state, over fewer steps than n.
    rewards: (B, T). ends, present: as in `has_target`. online, target: (B, T, A) Q and Q⁻, both rescaled by h.
    n: at least 1. epsilon: of h.
    """
    greedy = online.argmax(-1)
    values = unscaled(np.take_along_axis(target, greedy[..., None], -1)[..., 0], epsilon)
    fitted = has_target(ends, present)
    cut = present & ~fitted
    # The value of a cut-off sequence's last state counts as its reward: n-step returns that reach it bootstrap there.
    earned = np.where(cut, values, np.where(present, rewards, 0.0))
    last = ends | ~fitted
    last[:, -1] = True
    returns = n_step_returns(earned.ravel(), values.ravel(), gamma, n, last=last.ravel())
    return np.where(fitted, rescaled(returns.reshape(rewards.shape), epsilon), 0.0)


def sequence_priorities(td: Array, learned: Mask, eta: float = 0.9) -> Array:
    """(B,) p = η max_t |td_t| + (1 − η) mean_t |td_t| over the learned steps (R2D2, section 2.3); 0 without any.

    td: (B, T) differences of rescaled values. learned: (B, T).
    """
    size = np.where(learned, np.abs(td), 0.0)
    return np.asarray(eta * size.max(-1) + (1.0 - eta) * size.sum(-1) / np.maximum(learned.sum(-1), 1))
