"""Losses in torch: equation 1 for the policy, binary cross-entropy for critics, −log π for what is imitated."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LOG_RATIO_BOUNDS = (-10.0, 5.0)
"""log ρ is clamped to these before exp: otherwise one action that has become far more likely than it was when it was
recorded overflows a whole batch."""

DEVIATION_FLOOR = 1e-3
"""Added to the deviation that advantages are divided by, which is 0 for equal ones: they become up to 1000 times as
large, and the gradient's norm is clipped."""


def importance_ratio(logprob: Tensor, behaviour_logprob: Tensor) -> Tensor:
    """ρ = π(a|s) / μ(a|s) over the whole action's tokens; (B,), detached, clamped only by LOG_RATIO_BOUNDS."""
    return (logprob.detach() - behaviour_logprob).clamp(*LOG_RATIO_BOUNDS).exp()


def shape_advantages(advantages: Tensor, normalise: bool, negative_weight: float) -> Tensor:
    """(B,) advantages divided by their deviation (the mean is not subtracted, to keep signs), then the negative ones
    scaled by `negative_weight`.

    The loss of making an action less likely has no bound and destroys a small policy: at full weight, success falls.
    """
    if normalise:
        advantages = advantages / (advantages.std(correction=0) + DEVIATION_FLOOR)
    return torch.where(advantages < 0, negative_weight * advantages, advantages)


def policy_loss(
    logprob: Tensor,
    entropy: Tensor,
    ratio: Tensor,
    advantages: Tensor,
    invalid: Tensor,
    *,
    beta: float,
    lam: float,
    ratio_clip: float,
) -> Tensor:
    """L = −E_μ[ρ A log π] − β E_μ[H(π)] + λ E_μ[ρ P_invalid log π] (DistRL, equation 1); a scalar.

    ρ is a weight: detached and clipped to [0, ratio_clip], so the gradient is that of equation 4.
    The penalty as printed, λ E_μ[P_invalid], does not depend on θ and so has no gradient. Presumably
    λ E_π[P_invalid] is meant, whose score-function gradient is λ E_μ[ρ P_invalid ∇ log π]: that form is used here.

    logprob: (B,) log π(a|s), the only gradient besides entropy (B,). ratio, advantages: (B,). invalid: (B,) 0 or 1.
    """
    weight = ratio.detach().clamp(max=ratio_clip)
    surrogate = (weight * advantages.detach() * logprob).mean()
    penalty = (weight * invalid * logprob).mean()
    return -surrogate - beta * entropy.mean() + lam * penalty


def clipped_loss(logprob: Tensor, behaviour_logprob: Tensor, advantages: Tensor, clip: float) -> Tensor:
    """L = −E_μ[min(ρ A, clip(ρ, 1 − clip, 1 + clip) A)] (PPO, arXiv 1707.06347, equation 7); a scalar.

    logprob: (B,) log π(a|s), the only gradient, through ρ = π/μ. behaviour_logprob, advantages: (B,).

    ∇ρ = ρ ∇log π holds above the upper bound of log ρ too. The clamp's own gradient is 0 there, so a failed action that
    has become that likely would never become less likely again.
    """
    least, most = LOG_RATIO_BOUNDS
    behaviour_logprob = behaviour_logprob.clamp(min=torch.finfo(behaviour_logprob.dtype).min)  # ∞ − ∞ is no number
    log, advantages = (logprob - behaviour_logprob).clamp(min=least), advantages.detach()
    ratio = log.detach().clamp(max=most).exp() * (1 + (log - log.detach()))  # the second factor is 1 exactly
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - clip, 1 + clip) * advantages).mean()


def critic_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Mean weighted binary cross-entropy of a critic σ(logits) against soft targets in [0, 1] (section 5.1); a scalar.

    V(s): targets 1[G_t > 0] or those of Retrace, weights 1 / (N q) of N transitions drawn with probability q.
    V_traj(s_H, a_H): targets the outcome, weights 1 / (n q) of n trajectories on final steps and 0 on all others.
    Divided by B and not by the weights' sum: their mean is 1, and the loss is unbiased. All inputs (B,).
    """
    return (F.binary_cross_entropy_with_logits(logits, targets, reduction="none") * weights).mean()


def clone_loss(logprob: Tensor) -> Tensor:
    """−E[log π(a|s)]: behaviour cloning; (B,) -> scalar."""
    return -logprob.mean()
