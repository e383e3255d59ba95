"""The losses of R2D3: R2D2's on sequences, and those that DQfD adds for demonstrations.

L = J_n + λ₁ J_1 + λ₂ J_E + λ₃ Σθ²
J_n = E[w ½ (Q(s_t, a_t) − y_t)²], J_1 the same with n = 1
J_E = E[w (max_a (Q(s, a) + l(a_E, a)) − Q(s, a_E))] over demonstrations,   l = margin where a ≠ a_E, else 0

DQfD (arXiv 1704.03732) has all four. R2D3's paper describes n-step double Q-learning alone; DI-engine's R2D3, which
is followed here, adds DQfD's other terms. A weight of 0 leaves a term out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Settings of the loss and of priorities."""

    gamma: float = 0.97
    n: int = 5
    """Steps until a return bootstraps: 5 in R2D3, 3 to 5 in DI-engine."""
    epsilon: float = 1e-3
    """ε of the rescaling h."""
    one_step_weight: float = 1.0
    """λ₁."""
    margin_weight: float = 1.0
    """λ₂."""
    margin: float = 0.8
    """By how much the Q of a demonstrated action should exceed all others, in rescaled values."""
    l2_weight: float = 1e-5
    """λ₃."""
    eta: float = 0.9
    """Share of the largest |td| in a sequence's priority."""


def td_loss(chosen: Tensor, targets: Tensor, weights: Tensor, count: float | None = None) -> Tensor:
    """Σ w ½ (Q(s_t, a_t) − y_t)² / Σ 1[w > 0]. All (B, T); weights: 0 on steps that are not learned from. count: the
    divisor where these rows are only a part of a minibatch."""
    return _mean(0.5 * (chosen - targets).square(), weights, count)


def margin_loss(q: Tensor, actions: Tensor, weights: Tensor, margin: float, count: float | None = None) -> Tensor:
    """J_E of q (B, T, A), averaged like `td_loss`. actions: (B, T) of the demonstrator. weights: (B, T), 0 on all steps
    but those of demonstrations."""
    chosen = q.gather(-1, actions[..., None])
    ahead = (q + margin).scatter(-1, actions[..., None], chosen)
    return _mean(ahead.amax(-1) - chosen[..., 0], weights, count)


def l2(parameters: Iterable[Tensor]) -> Tensor:
    """Σθ², biases included, as in DQfD."""
    return torch.stack([each.square().sum() for each in parameters]).sum()


def _mean(each: Tensor, weights: Tensor, count: float | None) -> Tensor:
    return (each * weights).sum() / ((weights > 0).sum().clamp(min=1) if count is None else count)
